"""The cache of derived systems and generated modules, by content, in the user's cache folder.

An entry is one JSON file whose payload carries its own checksum; an entry that does not check out is rebuilt. Keys
include the source of theory/ and codegen/ and the versions of what they run on, so that a changed program never meets
an old entry. Entries are run as code: the folder is the user's own, and only files that nobody else could have written
are read.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from replicode import __version__
from replicode.validation.ledger import Ledger, LedgerError

MOST_BYTES = 512 * 2**20
FOLDER_MODE = 0o700
RUN_ON = ("sympy", "numpy", "scipy", "mpmath")
ENTRIES = tuple(f"*-{'[0-9a-f]' * 64}.{kind}" for kind in ("json", "sqlite"))
LOGS = "-wal", "-shm"  # what SQLite keeps beside a ledger whose process was killed
PARTIAL = "entry-*.partial"
FRONT_DOOR = "replicode", "replicode.verbs", "replicode.inputs", "replicode.branches"  # what answers a verb
ABANDONED = 86400.0  # seconds after which a partial file has no writer any more


def cache_folder() -> Path:
    """REPLICODE_CACHE, or the user's cache folder, or a temporary one where the user has no home."""
    if chosen := os.environ.get("REPLICODE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or ("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    try:
        return Path(base).expanduser() / "replicode"
    except RuntimeError:
        return _temporary_folder()


@lru_cache(maxsize=1)
def _temporary_folder() -> Path:
    """A folder for this process alone."""
    folder = Path(tempfile.mkdtemp(prefix="replicode-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    _warn("not kept after this run: there is no home folder; REPLICODE_CACHE names one to keep it in")
    return folder


def _warn(problem: object) -> None:
    print(f"warning: cache {problem}", file=sys.stderr)


@lru_cache(maxsize=1)
def program_digest() -> str:
    """Hash of the source that derives and generates, and of the versions that it runs on."""
    versions = [__version__, *(f"{name} {version(name)}" for name in RUN_ON)]
    digest = hashlib.sha256("\n".join(versions).encode())
    for package in ("replicode.theory", "replicode.codegen"):
        spec = find_spec(package)
        root = Path(str(spec.origin)).parent if spec else Path()
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".c")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


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
    else:
        with contextlib.suppress(OSError):
            os.utime(path)  # the entries that are used are dropped last
    return payload


def work_ledger(kind: str, *parts: object) -> Ledger:
    """The ledger of work that is done piece by piece; one for this run alone where none can be the user's own."""
    path = cache_folder() / f"{kind}-{cache_key(kind, *parts)}.sqlite"
    try:
        _make_folder(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with os.fdopen(handle):
            own = _is_own(os.fstat(handle))
        return Ledger(path if own else None)
    except (OSError, LedgerError) as problem:
        _warn(f"not written: {problem}")
        return Ledger(None)


def once(kind: str, key: tuple[object, ...], build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The payload of this key in the ledger of a kind of work, built where it is not there."""
    with work_ledger(kind) as ledger:
        payload = ledger.get(repr(key))
        if payload is None:
            payload = build()
            try:
                ledger.put(repr(key), payload)
            except LedgerError as problem:
                _warn(f"not written: {problem}")
    return dict(payload)


def _checksum(payload: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        entry = json.loads(_own_text(path))
        payload = entry["payload"]
        return payload if isinstance(payload, dict) and entry["checksum"] == _checksum(payload) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _own_text(path: Path) -> str:
    """The text of a file that this user owns and nobody else can write."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, encoding="utf-8") as stream:
        if not _is_own(os.fstat(handle)):
            raise PermissionError(path)
        return stream.read()


def _is_own(found: os.stat_result) -> bool:
    """Whether a regular file is this user's, and writable by no other."""
    if not stat.S_ISREG(found.st_mode):
        return False
    return not hasattr(os, "geteuid") or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)


def _write(path: Path, payload: dict[str, Any]) -> None:
    """Whole or not at all; a cache that can not be written is no reason to fail."""
    entry = json.dumps({"checksum": _checksum(payload), "payload": payload})
    try:
        _make_folder(path.parent)
        handle, partial = tempfile.mkstemp(dir=path.parent, prefix="entry-", suffix=".partial")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(entry)
            os.replace(partial, path)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
        _trim(path.parent)
    except OSError as problem:
        _warn(f"not written: {problem}")


def _make_folder(folder: Path) -> None:
    """The folder for this user alone; one that REPLICODE_CACHE names is left as it is where it exists."""
    folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    if not os.environ.get("REPLICODE_CACHE") and folder.stat().st_mode & 0o077:
        folder.chmod(FOLDER_MODE)


def _trim(folder: Path) -> None:
    """Drop what a killed process left half written, and the entries used longest ago beyond the size allowed."""
    left = MOST_BYTES
    for _, size, path in sorted(_files(folder, *ENTRIES), reverse=True):
        left -= size
        if left < 0:
            _remove(path)
    for written, _, path in _files(folder, PARTIAL):
        if written < time.time() - ABANDONED:
            path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """Remove an entry with all that belongs to it."""
    for end in ("", *LOGS):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _files(folder: Path, *patterns: str) -> list[tuple[float, int, Path]]:
    """When each file was last used, its size, and where it is."""
    found = []
    for path in (path for pattern in patterns for path in folder.glob(pattern)):
        with contextlib.suppress(OSError):  # another process may have removed it
            state = path.lstat()
            found.append((state.st_mtime, state.st_size, path))
    return found


def entries() -> list[dict[str, Any]]:
    """What the cache holds: file name, size, what it was made for, and whether it is intact."""
    found = []
    for _, size, path in sorted(_files(cache_folder(), *ENTRIES), key=lambda f: f[2]):
        payload = {"made_for": "a ledger of work that was done"} if path.suffix == ".sqlite" else _read(path)
        made_for = payload.get("made_for", "") if payload else ""
        found.append({"file": path.name, "bytes": size, "made_for": made_for, "intact": bool(payload)})
    return found


def clear() -> int:
    """Remove every entry; returns how many there were."""
    paths = [path for _, _, path in _files(cache_folder(), *ENTRIES, PARTIAL)]
    for path in paths:
        _remove(path)
    return len(paths)
