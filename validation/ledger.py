"""The ledger: finished work in one SQLite file, a row for every key, so that what was interrupted goes on from there.

A row is one transaction of a write-ahead log: a process that is killed leaves every finished row whole and nothing of
an unfinished one. Keys say what was asked and of which program; payloads are JSON text. Several processes may read and
write at once; who must be alone, as a sweep must, holds `alone`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from replicode.theory.errors import InputError

APPLICATION = 0x5265706C  # "Repl": SQLite's header has a place for whose file it is
SCHEMA = 1
WAIT = 60.0  # seconds for another process to finish its row
DONE = "done"
_TABLE = """CREATE TABLE rows (key TEXT PRIMARY KEY, asked TEXT NOT NULL, status TEXT NOT NULL,
payload TEXT NOT NULL, seconds REAL NOT NULL) WITHOUT ROWID"""
_MANY = 500  # keys in one question

Key = str | Mapping[str, object]


class LedgerError(InputError):
    """A ledger that can not be opened, read or written."""


class Row(NamedTuple):
    """What is kept of one piece of work; `payload` is JSON text."""

    asked: str
    status: str
    payload: str
    seconds: float


class Ledger:
    """Rows by key; without a path they are kept for as long as the object is."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(os.path.realpath(path))
        where: dict[str, Any] = {"timeout": WAIT, "isolation_level": None, "check_same_thread": False}
        with self._told():
            self._rows = sqlite3.connect(self.path or ":memory:", **where)
            self._close = weakref.finalize(self, self._rows.close)
            try:
                self._prepare()
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is read or written any more."""
        self._close()

    def get(self, key: Key) -> Any:
        """The payload of a finished piece of work, or None."""
        found = self.rows([text := _text(key)]).get(text)
        return json.loads(found.payload) if found is not None and found.status == DONE else None

    def rows(self, keys: Iterable[str]) -> dict[str, Row]:
        """The rows that are there of these keys."""
        wanted = list(keys)
        found: dict[str, Row] = {}
        with self._told():
            for start in range(0, len(wanted), _MANY):
                some = wanted[start : start + _MANY]
                marks = ",".join("?" * len(some))
                lines = self._rows.execute(f"SELECT * FROM rows WHERE key IN ({marks})", some)
                found |= {key: Row(*rest) for key, *rest in lines}
        return found

    def elsewhere(self, asked: Mapping[str, str]) -> int:
        """How many rows ask the same as these keys and have other keys: those of another version of the program."""
        with self._told():
            lines = self._rows.execute("SELECT key, asked FROM rows").fetchall()
        known = set(asked.values())
        return sum(question in known and key not in asked for key, question in lines)

    def put(self, key: Key, payload: Any, *, status: str = DONE, asked: str = "", seconds: float = 0.0) -> Any:
        """Keep a payload, in place of an older one of this key; returns it."""
        row = _text(key), asked, status, json.dumps(payload), seconds
        with self._told():
            self._rows.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", row)
        return payload

    def once(self, key: Key, build: Callable[[], Any]) -> Any:
        """The payload of this key, built and kept where there is none."""
        found = self.get(key)
        return self.put(key, build()) if found is None else found

    def take_over(self, lines: Path) -> None:
        """The rows that an older version kept in a file of JSON lines, where this ledger does not have their keys."""
        with suppress(OSError), self._told():
            found = _older(lines.read_text(encoding="utf-8", errors="replace"))
            rows = [(key, "", DONE, json.dumps(payload), 0.0) for key, payload in found.items()]
            self._rows.execute("BEGIN")
            self._rows.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?)", rows)
            self._rows.execute("COMMIT")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A LedgerError where another process, or another object of this one, is inside this block for the same file.

        The lock is SQLite's own, on a file of its own beside the ledger: it ends with the process, however that ends.
        """
        with closing(sqlite3.connect(f"{self.path}.lock", timeout=0, isolation_level=None)) as lock:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                allowed = "a ledger that no other sweep works on: wait until that one has ended, or name another file"
                raise LedgerError("ledger", str(self.path), allowed) from None
            yield

    def _prepare(self) -> None:
        """The table, made where there is none; an error where the file is not ours or can not be written."""
        self._rows.execute("BEGIN IMMEDIATE")
        schema = self._checked()
        if not schema:
            for statement in (_TABLE, f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {SCHEMA}"):
                self._rows.execute(statement)
        self._rows.execute("COMMIT")
        with suppress(sqlite3.OperationalError):  # others are at it: the older kind of journal is as safe
            self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.execute("PRAGMA synchronous = FULL")

    def _checked(self) -> int:
        """The schema of the file, 0 where it is new; an error where it is not that of this program."""
        owner, schema, tables = (
            self._rows.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if not (owner or schema or tables):
            return 0
        if owner != APPLICATION:
            raise self._refused("a ledger, or a file that is not there yet: this one is something else")
        if schema != SCHEMA:
            age, way = ("an older", "use that one") if schema < SCHEMA else ("a newer", "update")
            raise self._refused(
                f"a ledger of schema {SCHEMA}: this one has {schema}, of {age} Replicode; {way}, or name another file"
            )
        return int(schema)

    def _refused(self, allowed: str) -> LedgerError:
        return LedgerError("ledger", str(self.path), allowed)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """SQLite's errors with the file they are about."""
        try:
            yield
        except sqlite3.Error as problem:
            raise self._refused(f"a ledger that can be read and written ({problem})") from None


def _text(key: Key) -> str:
    return key if isinstance(key, str) else json.dumps(key, sort_keys=True)


def _older(text: str) -> dict[str, Any]:
    """Payloads by key of JSON lines: the last line of a key counts, a torn line does not."""
    found = {}
    for line in text.splitlines():
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            entry = json.loads(line)
            found[entry.pop("key")] = entry.get("payload", entry)  # the oldest have no payload of their own
    return found


def source_hash(*packages: str) -> str:
    """Hash of the source of these packages, as files and not below: what is kept of one program is not another's."""
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted(files(package).iterdir(), key=lambda p: p.name):
            if path.name.endswith((".py", ".c")):
                digest.update(f"{package} {path.name}".encode() + path.read_bytes())
    return digest.hexdigest()


def training_source() -> str:
    """Hash of the source that draws data and trains."""
    rooms = ("data", "training", "statistics", "landscape", "studies", "amp")
    return source_hash("replicode.validation", *(f"replicode.validation.{room}" for room in rooms))
