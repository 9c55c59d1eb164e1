"""The ledger: whole rows whatever happens, and a clear message where a file can not be one."""

import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import time

import pytest

from replicode.theory.errors import InputError
from replicode.validation.ledger import APPLICATION, SCHEMA, Ledger, LedgerError

WRITER = """
import resource, sys
from replicode.validation.ledger import Ledger
print("ready", flush=True)
ledger = Ledger(sys.argv[1])
for i in range(int(sys.argv[2]), 10**6):
    ledger.put({"number": i}, {"value": [i] * 100})
    print(i, flush=True)
"""


def test_rows_come_back_and_the_last_of_a_key_counts(tmp_path):
    with Ledger(tmp_path / "a.sqlite") as ledger:
        assert ledger.get("key") is None
        assert ledger.put("key", {"x": 1.5}) == {"x": 1.5}
        ledger.put("key", {"x": [float("inf"), None, "text"]}, asked="question", seconds=2.0)
        ledger.put({"b": 1, "a": 2}, "by a mapping")
        ledger.put("bad", {"reason": "none"}, status="failed")
    with Ledger(tmp_path / "a.sqlite") as again:
        assert again.get("key") == {"x": [float("inf"), None, "text"]}
        assert again.get({"a": 2, "b": 1}) == "by a mapping" and again.get("bad") is None
        found = again.rows(["key", "bad", "none"])
        assert set(found) == {"key", "bad"} and found["key"].asked == "question" and found["bad"].status == "failed"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.sqlite"]


def test_without_a_path_rows_last_as_long_as_the_object():
    ledger = Ledger(None)
    ledger.put("key", 1)
    assert ledger.get("key") == 1 and Ledger(None).get("key") is None


def test_many_keys_are_asked_for_at_once():
    ledger = Ledger(None)
    for i in range(1203):
        ledger.put(str(i), i)
    assert len(ledger.rows(map(str, range(0, 2000, 2)))) == 602


def test_rows_of_another_version_are_counted():
    ledger = Ledger(None)
    for key, question in (("new", "a"), ("old", "a"), ("older", "a"), ("other", "b")):
        ledger.put(key, 1, asked=question)
    assert ledger.elsewhere({"new": "a"}) == 2


def test_lines_of_an_older_version_are_taken_over_once(tmp_path):
    lines = tmp_path / "trained.jsonl"
    keys = [json.dumps({"seed": s}) for s in range(4)]
    entries = [{"key": keys[0], "payload": 1.0}, {"key": keys[0], "payload": 2.0}, {"key": keys[1], "value": 3}]
    text = "".join(json.dumps(entry) + "\n" for entry in [*entries, {"key": keys[3], "payload": "older"}])
    lines.write_text(text + '["no entry"]\n{"key": "{\\"seed')
    with Ledger(tmp_path / "a.sqlite") as ledger:
        ledger.put({"seed": 3}, "newer")
        for path in (lines, tmp_path / "none.jsonl", lines):
            ledger.take_over(path)
        assert [ledger.get({"seed": s}) for s in range(4)] == [2.0, {"value": 3}, None, "newer"]


def test_a_killed_writer_leaves_every_finished_row_and_nothing_else(tmp_path):
    path, moments, done = tmp_path / "a.sqlite", random.Random(16), -1
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, path, str(done + 1)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0.0, 0.1))
        writer.kill()
        told = writer.communicate()[0].split()
        done = max([done, *map(int, told)])
        with Ledger(path) as ledger:
            rows = {i: ledger.get({"number": i}) for i in range(done + 3)}
        assert all(rows[i] == {"value": [i] * 100} for i in range(done + 1))
        done += rows[done + 1] is not None  # kept, and killed before it said so
        assert rows[done + 1] is None
    with sqlite3.connect(path) as rows:
        assert rows.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    rows.close()
    assert done > 2


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000))


def test_a_full_disk_is_told_and_what_is_there_stays(tmp_path):
    path = tmp_path / "a.sqlite"
    found = subprocess.run(
        [sys.executable, "-c", WRITER, path, "0"], preexec_fn=limited, capture_output=True, text=True, timeout=60
    )
    assert found.returncode == 1 and "LedgerError: ledger: got" in found.stderr
    assert "can be read and written (d" in found.stderr  # database or disk is full, disk I/O error
    count = len(found.stdout.split()) - 1
    with Ledger(path) as ledger:
        assert count > 5 and all(ledger.get({"number": i}) == {"value": [i] * 100} for i in range(count))
        ledger.put("more", 1)
        assert ledger.get("more") == 1


def other_database(path):
    rows = sqlite3.connect(path)
    rows.execute("CREATE TABLE of_the_user (x)")
    rows.commit()
    rows.close()


def of_schema(schema):
    def make(path):
        Ledger(path).close()
        rows = sqlite3.connect(path)
        rows.execute(f"PRAGMA user_version = {schema}")
        rows.close()

    return make


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda path: path.write_text("notes of mine, longer than a header " * 9), "file is not a database"),
        (other_database, "this one is something else"),
        (of_schema(SCHEMA + 1), rf"schema {SCHEMA}: this one has {SCHEMA + 1}, of a newer Replicode; update, or"),
        (of_schema(SCHEMA - 1), rf"this one has {SCHEMA - 1}, of an older Replicode; use that one, or"),
    ],
    ids=["text", "database", "newer", "older"],
)
def test_what_is_no_ledger_of_this_version_is_left_as_it_is(tmp_path, make, named):
    path = tmp_path / "a.sqlite"
    make(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=named) as refused:
        Ledger(path)
    if make is other_database:  # and not locked either
        rows = sqlite3.connect(path, timeout=0)
        rows.execute("BEGIN IMMEDIATE")
        rows.close()
    assert str(refused.value).startswith(f"ledger: got '{path}', allowed is a ledger")
    assert path.read_bytes() == before and isinstance(refused.value, InputError)


@pytest.mark.parametrize("place", ["/proc/a.sqlite", "/no/such/folder/a.sqlite", "/tmp"])
def test_where_no_file_can_be_made(place):
    with pytest.raises(LedgerError, match="unable to open database file"):
        Ledger(place)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is write-protected from root")
def test_a_write_protected_ledger_is_told_before_any_work(tmp_path):
    Ledger(tmp_path / "a.sqlite").close()
    (tmp_path / "a.sqlite").chmod(0o400)
    with pytest.raises(LedgerError, match="readonly"):
        Ledger(tmp_path / "a.sqlite")


def test_one_is_alone_and_the_next_is_told(tmp_path):
    path = tmp_path / "a.sqlite"
    with Ledger(path) as first, Ledger(path) as second:
        with first.alone(), pytest.raises(LedgerError, match="no other sweep works on: wait"), second.alone():
            pass
        with first.alone():
            second.put("row", 1)  # others still read and write
        with second.alone():
            assert first.get("row") == 1


def test_who_is_killed_is_alone_no_more(tmp_path):
    program = "import sys, time; from replicode.validation.ledger import Ledger\n"
    program += "with Ledger(sys.argv[1]).alone(): print('alone', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", program, tmp_path / "a"], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "alone\n"
    with Ledger(tmp_path / "a") as ledger:
        with pytest.raises(LedgerError), ledger.alone():
            pass
        other.kill()
        other.communicate()
        with ledger.alone():
            pass


def test_the_header_says_whose_file_it_is(tmp_path):
    Ledger(tmp_path / "a.sqlite").close()
    assert (tmp_path / "a.sqlite").read_bytes()[68:72] == APPLICATION.to_bytes(4, "big") == b"Repl"
