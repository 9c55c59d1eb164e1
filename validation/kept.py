"""Work that was done, kept in a file of JSON lines, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from replicode.codegen.writing import unwritable


class Kept:
    """Payloads by key in a file of JSON lines; the last line of a key counts, a torn line does not."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[str, Any] = {}
        text = _text(path) if path is not None else ""
        self.torn = bool(text) and not text.endswith("\n")
        for line in text.splitlines():
            try:
                entry = json.loads(line)
                self.known[entry.pop("key")] = entry.get("payload", entry)  # older lines have no payload of their own
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue

    def get(self, key: Mapping[str, object]) -> Any:
        """The payload of this key, or None."""
        return self.known.get(json.dumps(key, sort_keys=True))

    def put(self, key: Mapping[str, object], payload: Any) -> Any:
        """Keep a payload, on disk too if there is a file; an InputError where that cannot be written."""
        text = json.dumps(key, sort_keys=True)
        self.known[text] = payload
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as stream:
                    stream.write("\n" * self.torn + json.dumps({"key": text, "payload": payload}) + "\n")
            except OSError as problem:
                self.torn = True
                raise unwritable("output", self.path, "file", problem) from None
            self.torn = False
        return payload


def _text(path: Path) -> str:
    """What the file has; nothing where it can not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def training_source() -> str:
    """Hash of the source that draws data and trains: what is kept of one program is not another's."""
    digest = hashlib.sha256()
    for path in sorted(files("replicode.validation").iterdir(), key=lambda p: p.name):
        if path.name.endswith(".py"):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
