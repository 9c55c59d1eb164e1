"""Files are written whole or not at all: what was there, its mode and its links stay, and nothing else is left."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from replicode.codegen import writing
from replicode.codegen.compiler import GeneratedModule
from replicode.theory.errors import InputError

MODULE = GeneratedModule("print('whole')\n" * 1000, "signature", {})
STANDARD_OUTPUT = "/proc/self/fd/1"  # what /dev/stdout leads to, in a folder where nothing can be made
NOT_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="nothing is write-protected from root")


def left_in(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        MODULE.save(tmp_path / "s.py")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "s.py").stat().st_mode) == 0o640 and left_in(tmp_path) == ["s.py"]


def test_the_mode_of_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "s.py"
    path.write_text("old")
    path.chmod(0o600)
    MODULE.save(path)
    assert path.read_text() == MODULE.source and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link(tmp_path, there):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "real.py", tmp_path / "s.py"
    if there:
        target.write_text("old")
    link.symlink_to(target)
    MODULE.save(link)
    assert link.is_symlink() and target.read_text() == MODULE.source
    assert left_in(tmp_path) == ["far", "s.py"] and left_in(tmp_path / "far") == ["real.py"]


def test_a_planted_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".s.py.partial").symlink_to(victim)
    MODULE.save(tmp_path / "s.py")
    assert victim.read_text() == "precious" and (tmp_path / "s.py").read_text() == MODULE.source


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()), daemon=True)
    reader.start()
    MODULE.save(pipe)
    reader.join(timeout=10)
    assert found == [MODULE.source] and stat.S_ISFIFO(pipe.stat().st_mode) and left_in(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_stays_a_device():
    """A terminal of our own: a fault that replaces it can do no harm, as one that replaces /dev/null as root would."""
    ours, theirs = os.openpty()
    try:
        device = os.ttyname(theirs)
        writing.write(device, "whole")
        assert os.read(ours, 100) == b"whole" and stat.S_ISCHR(os.stat(device).st_mode)
    finally:
        os.close(ours)
        os.close(theirs)


def test_standard_output_sent_to_a_file_is_not_replaced(tmp_path, capfd):
    with (tmp_path / "out").open("a") as out:
        out.write("before\n")
        out.flush()
        kept = os.dup(1)
        os.dup2(out.fileno(), 1)
        try:
            assert writing.is_standard_output(STANDARD_OUTPUT)
            writing.write(STANDARD_OUTPUT, "module\n")
            os.write(1, b"after\n")
        finally:
            os.dup2(kept, 1)
            os.close(kept)
    assert (tmp_path / "out").read_text() == "before\nmodule\nafter\n"


def test_many_at_once(tmp_path):
    problems, start = [], threading.Barrier(10)

    def save():
        start.wait()
        try:
            for _ in range(20):
                MODULE.save(tmp_path / "s.py")
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=save) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [] and left_in(tmp_path) == ["s.py"] and (tmp_path / "s.py").read_text() == MODULE.source


@pytest.mark.parametrize("trouble", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(tmp_path, monkeypatch, trouble):
    path = tmp_path / "s.py"
    path.write_text("old")

    def fail(*_):
        raise trouble

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(os, "rename", fail)
    monkeypatch.setattr(Path, "replace", fail)
    expected = KeyboardInterrupt if isinstance(trouble, KeyboardInterrupt) else InputError
    with pytest.raises(expected, match="No space left" if expected is InputError else None):
        MODULE.save(path)
    assert path.read_text() == "old" and left_in(tmp_path) == ["s.py"]


def test_the_longest_name_can_be_written(tmp_path):
    name = "s" * 252 + ".py"
    MODULE.save(tmp_path / name)
    assert left_in(tmp_path) == [name]


def test_what_can_not_be_written_is_told_before(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "none" / "s.py", tmp_path / "file" / "s.py", "/proc/s.py", ""):
        with pytest.raises(InputError, match="output: got"):
            writing.checked_file(path)
        with pytest.raises(InputError, match="output: got"):
            writing.write(path, "text")
    for path in (tmp_path / "file", tmp_path / "file" / "below", "/proc"):
        with pytest.raises(InputError, match="a folder that can be written"):
            writing.checked_folder(path)
    assert writing.checked_file(tmp_path / "file") == tmp_path / "file"
    assert writing.checked_folder(tmp_path / "new" / "below").is_dir() and left_in(tmp_path / "new" / "below") == []


@NOT_ROOT
def test_write_protection_is_respected(tmp_path):
    path = tmp_path / "s.py"
    path.write_text("old")
    path.chmod(0o400)
    for attempt in (writing.checked_file, MODULE.save):
        with pytest.raises(InputError, match="write-protected"):
            attempt(path)
