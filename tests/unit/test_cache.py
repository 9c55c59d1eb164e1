"""The cache: whose files it reads, what it leaves behind, how much it keeps, and a user without a home."""

import json
import os
import stat
import subprocess
import sys

import pytest

from replicode import cache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REPLICODE_CACHE", str(tmp_path / "made" / "cache"))
    return tmp_path / "made" / "cache"


def built(value="new"):
    return lambda: {"made_for": "a test", "value": value}


def entry(folder):
    (path,) = folder.glob("*.json")
    return path


def test_the_folder_and_its_entries_are_the_users_own(folder):
    before = os.umask(0)
    try:
        cache.cached("kind", ("part",), built())
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(folder).stat().st_mode) == 0o600


def test_an_old_default_folder_is_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.delenv("REPLICODE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "replicode").mkdir(mode=0o777)
    cache.cached("kind", ("part",), built())
    assert stat.S_IMODE((tmp_path / "replicode").stat().st_mode) == 0o700


@pytest.mark.parametrize("harm", ["another owner", "writable by others", "a link", "a pipe"])
def test_entries_that_another_could_have_written_are_built_again(folder, monkeypatch, harm):
    cache.cached("kind", ("part",), built("old"))
    path = entry(folder)
    if harm == "another owner":
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    elif harm == "writable by others":
        path.chmod(0o666)
    else:
        elsewhere = path.rename(folder.parent / "planted")
        path.symlink_to(elsewhere) if harm == "a link" else os.mkfifo(path)
    assert cache.cached("kind", ("part",), built("new"))["value"] == "new"


def test_a_deeply_nested_entry_is_built_again(folder):
    cache.cached("kind", ("part",), built("old"))
    entry(folder).write_text('{"payload": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert [e["intact"] for e in cache.entries()] == [False]
    assert cache.cached("kind", ("part",), built("new"))["value"] == "new"


def test_a_failed_write_leaves_nothing(folder, monkeypatch, capsys):
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert cache.cached("kind", ("part",), built())["value"] == "new"
    assert list(folder.iterdir()) == [] and "cache not written" in capsys.readouterr().err
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        cache.cached("kind", ("part",), built())
    assert list(folder.iterdir()) == []


def test_the_entries_used_longest_ago_are_dropped(folder, monkeypatch):
    for age, part in enumerate("abc"):
        cache.cached("kind", (part,), built(part * 100))
        path = folder / f"kind-{cache.cache_key('kind', part)}.json"
        os.utime(path, (1000 + age, 1000 + age))
    (folder / "notes.json").write_text("of the user")
    (folder / "entry-killed.partial").write_text("half")
    os.utime(folder / "entry-killed.partial", (1000, 1000))
    cache.cached("kind", ("a",), built("never"))  # used just now
    monkeypatch.setattr(cache, "MOST_BYTES", 2 * path.stat().st_size + 50)
    cache.cached("kind", ("d",), built("d" * 100))
    left = {json.loads(p.read_text())["payload"]["value"][0] for p in folder.glob("kind-*.json")}
    assert left == {"a", "d"} and sorted(p.name for p in folder.glob("[!k]*")) == ["notes.json"]
    assert cache.clear() == 2 and [p.name for p in folder.iterdir()] == ["notes.json"]


def test_ledgers_are_the_users_own_and_cleared_too(folder, capsys):
    with cache.work_ledger("trained", "part") as ledger:
        path = ledger.path
        ledger.put("row", 1)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [e["intact"] for e in cache.entries()] == [True]
    path.chmod(0o666)
    with cache.work_ledger("trained", "part") as planted:
        assert planted.path is None and planted.get("row") is None
    path.with_name(path.name + "-wal").write_bytes(b"of a process that was killed")
    assert cache.clear() == 1 and list(folder.iterdir()) == []
    path.write_text("damaged: no ledger at all")
    with cache.work_ledger("trained", "part") as again:
        assert again.path is None and "warning: cache not written: ledger: got" in capsys.readouterr().err


def test_work_is_done_once_and_a_full_disk_is_no_reason_to_fail(folder, monkeypatch, capsys):
    assert cache.once("kind", ("key",), lambda: {"value": 1}) == {"value": 1}
    assert cache.once("kind", ("key",), lambda: pytest.fail("done again")) == {"value": 1}
    monkeypatch.setattr(cache.Ledger, "put", lambda *_: (_ for _ in ()).throw(cache.LedgerError("ledger", "a", "b")))
    assert cache.once("kind", ("other",), lambda: {"value": 2}) == {"value": 2}
    assert "cache not written" in capsys.readouterr().err


def test_versions_are_part_of_the_key(monkeypatch):
    keys = set()
    for changed in (None, "numpy", "scipy", "sympy", "replicode"):
        if changed == "replicode":
            monkeypatch.setattr(cache, "__version__", "99")
        found = "99" if changed else None
        with monkeypatch.context() as patch:
            real = cache.version
            patch.setattr(cache, "version", lambda name, c=changed, v=found, r=real: v if name == c else r(name))
            cache.program_digest.cache_clear()
            keys.add(cache.cache_key("kind", "part"))
    cache.program_digest.cache_clear()
    assert len(keys) == 5


def test_a_user_without_a_home_has_a_cache_for_the_run():
    program = "import os; os.environ.pop('HOME', None); import pwd; pwd.getpwuid = lambda _: {}[0]\n"
    program += "from replicode import cache; made = lambda: {'value': 1}; cache.cached('kind', (), made)\n"
    program += "print(len(cache.entries())); print(cache.cache_folder())"
    free = {k: v for k, v in os.environ.items() if k not in ("REPLICODE_CACHE", "XDG_CACHE_HOME", "HOME")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=free, timeout=60)
    assert done.returncode == 0, done.stderr
    count, folder = done.stdout.split()
    assert count == "1" and not os.path.exists(folder)
    assert done.stderr.count("warning: cache not kept") == 1
