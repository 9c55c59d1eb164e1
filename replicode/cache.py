"""The cache of derived systems and generated modules, by content, in the user's cache folder.

An entry is one JSON file whose payload carries its own checksum; an entry that does not check out is rebuilt. Keys
include the source of theory/ and codegen/, so that a changed program never meets an old entry.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def cache_folder() -> Path:
    """REPLICODE_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("REPLICODE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or ("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return Path(base).expanduser() / "replicode"


@lru_cache(maxsize=1)
def program_digest() -> str:
    """Hash of the source that derives and generates, and of the SymPy version that it runs on."""
    digest = hashlib.sha256(_sympy_version().encode())
    for package in ("replicode.theory", "replicode.codegen"):
        spec = find_spec(package)
        root = Path(str(spec.origin)).parent if spec else Path()
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".c")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _sympy_version() -> str:
    from importlib.metadata import version

    return version("sympy")


def cache_key(kind: str, *parts: object) -> str:
    """The key of an entry made from these parts by this program."""
    text = json.dumps([kind, program_digest(), *[repr(p) for p in parts]])
    return hashlib.sha256(text.encode()).hexdigest()


def cached(kind: str, parts: tuple[object, ...], build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The payload for these parts, read if an intact entry exists, else built and stored."""
    path = cache_folder() / f"{kind}-{cache_key(kind, *parts)}.json"
    payload = _read(path)
    if payload is None:
        payload = build()
        _write(path, payload)
    return payload


def _checksum(payload: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        payload = entry["payload"]
        return payload if isinstance(payload, dict) and entry["checksum"] == _checksum(payload) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, payload: dict[str, Any]) -> None:
    """Whole or not at all; a cache that can not be written is no reason to fail."""
    entry = json.dumps({"checksum": _checksum(payload), "payload": payload})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(entry)
        os.replace(partial, path)
    except OSError as problem:
        print(f"warning: cache not written: {problem}", file=sys.stderr)


def entries() -> list[dict[str, Any]]:
    """What the cache holds: file name, size, what it was made for, and whether it is intact."""
    found = []
    for path in sorted(cache_folder().glob("*.json")):
        payload = _read(path)
        made_for = payload.get("made_for", "") if payload else ""
        found.append({"file": path.name, "bytes": path.stat().st_size, "made_for": made_for, "intact": bool(payload)})
    return found


def clear() -> int:
    """Remove every entry; returns how many there were."""
    paths = [*cache_folder().glob("*.json"), *cache_folder().glob("*.partial")]
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths)
