"""The one way in which files are written: whole or not at all, and checked before any work is done.

A regular file is written to a fresh temporary file beside it and renamed, so that no reader ever sees half of it. What
is not a file, such as /dev/stdout or a named pipe, is written to as it is.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

from replicode.theory.errors import InputError

_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


def write(path: str | Path, content: str | bytes, argument: str = "output") -> Path:
    """Write the content; on any failure what was there before stays, and nothing else does."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        _write(Path(os.path.realpath(as_path(path, argument))), path, data)
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise unwritable(argument, path, "file", problem) from None
    return Path(path)


def write_picture(path: str | Path, figure: Any, **options: Any) -> Path:
    """Write a matplotlib figure in the format that the path's suffix names."""
    buffer = BytesIO()
    figure.savefig(buffer, format=Path(path).suffix[1:], **options)
    return write(path, buffer.getvalue())


def as_path(path: str | Path, argument: str = "output") -> Path:
    """The path that a text or an object of Python stands for."""
    if not isinstance(path, (str, os.PathLike)) or "\0" in str(path):
        raise InputError(argument, path, "a path as text or as an object of pathlib")
    return Path(path)


def checked_file(path: str | Path, argument: str = "output", suffixes: Sequence[str] = ()) -> Path:
    """The path, after an attempt to write beside it; an InputError where `write` would fail, or of another suffix."""
    target = Path(os.path.realpath(as_path(path, argument)))
    if suffixes and Path(path).suffix.lower() not in suffixes:
        raise InputError(argument, str(path), f"a file whose name ends in {', '.join(suffixes)}")
    try:
        if _descriptor(found := _status(Path(path))) is not None:
            return Path(path)
        if found is None or stat.S_ISREG(found.st_mode):
            if not target.parent.is_dir():
                raise InputError(argument, str(path), "a file in a folder that exists")
            _check_protection(target, found)
            _try_folder(target.parent)
        elif not _is_stream(found):
            raise InputError(argument, str(path), "a file, not a folder, a disk or a socket")
    except OSError as problem:
        raise unwritable(argument, path, "file", problem) from None
    return Path(path)


def checked_folder(path: str | Path, argument: str = "output") -> Path:
    """The folder, made where it is not there, after an attempt to write into it."""
    target = as_path(path, argument)
    try:
        target.mkdir(parents=True, exist_ok=True)
        _try_folder(target)
    except OSError as problem:
        raise unwritable(argument, path, "folder", problem) from None
    return target


def is_standard_output(path: str | Path) -> bool:
    """Whether the path leads to where standard output goes."""
    return _descriptor(_status(path)) == 1


def unwritable(argument: str, path: str | Path, kind: str, problem: OSError) -> InputError:
    """The error of a file or folder that cannot be written, with the reason."""
    return InputError(argument, str(path), f"a {kind} that can be written ({problem.strerror or problem})")


def _status(path: str | Path) -> os.stat_result | None:
    """What the path leads to, or None where nothing is there yet."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _is_stream(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode)


def _descriptor(found: os.stat_result | None) -> int | None:
    """Standard output or error, where that is what was found: a file opened by others is not replaced under them."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if found is not None and os.path.samestat(found, os.fstat(descriptor)):
                return descriptor
    return None


def _write(target: Path, path: str | Path, data: bytes) -> None:
    found = _status(path)
    if (descriptor := _descriptor(found)) is not None:
        sys.stdout.flush()
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(data)
    elif found is None or stat.S_ISREG(found.st_mode):
        _check_protection(target, found)
        _replace(target, found, data)
    elif _is_stream(found):
        with open(path, "wb") as stream:
            stream.write(data)
    else:
        raise OSError(errno.EINVAL, "it is not a file")


def _check_protection(target: Path, found: os.stat_result | None) -> None:
    """A rename would pass over the protection of a file."""
    if found is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is write-protected")


def _replace(target: Path, found: os.stat_result | None, data: bytes) -> None:
    """A fresh file in the target's place, with the old one's owner and mode, or those of any new file."""
    fresh = _fresh_name(target.parent)
    handle = os.open(fresh, _FRESH, 0o666 if found is None else 0o600)
    try:
        with open(handle, "wb") as stream:
            stream.write(data)
            if found is not None:
                with suppress(OSError):
                    os.chown(fresh, found.st_uid, found.st_gid)
                os.chmod(fresh, found.st_mode & 0o777)
        os.replace(fresh, target)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _fresh_name(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(8)}.partial"


def _try_folder(folder: Path) -> None:
    """An OSError where no file can be made."""
    fresh = _fresh_name(folder)
    os.close(os.open(fresh, _FRESH, 0o600))
    fresh.unlink()
