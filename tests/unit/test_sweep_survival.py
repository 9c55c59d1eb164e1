"""A sweep that is killed, whose worker is killed, or whose disk is full loses nothing that was done."""

import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

import replicode as rc
from replicode.sweeps import job, pool
from replicode.validation.ledger import Ledger

SMALL = {"activation": "linear", "tokens": 1, "alpha": "1:8:8", "nu": [1, 2], "noise": 0.3, "digits": 2}
LARGE = SMALL | {"activation": ["linear", "softmax"], "tokens": [1, 2], "alpha": "1:8:25", "digits": 3}
PROGRAM = """
import json, sys
from replicode.verbs.sweep import sweep
if __name__ == "__main__":
    found = sweep(json.loads(sys.argv[1]), ledger=sys.argv[2], workers=int(sys.argv[3]), export=sys.argv[4])
    print(found.computed)
"""


def config(points):
    return {**points, "bayes": False}


def started(points, folder, workers, export="rows.csv", **more):
    """A sweep in a process of its own."""
    (folder / "sweep.py").write_text(PROGRAM)
    given = [json.dumps(config(points)), folder / "a.sqlite", workers, folder / export]
    command = [sys.executable, str(folder / "sweep.py"), *map(str, given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def rows(path):
    """All rows of a ledger, which must be whole."""
    if not path.exists():
        return {}
    Ledger(path).close()  # takes over what a killed process left in the log
    with sqlite3.connect(path) as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = ledger.execute("SELECT * FROM rows").fetchall()
    ledger.close()
    assert len({row[0] for row in found}) == len(found)
    return {row[0]: row for row in found}


def killed_often(points, folder, workers, kills, whole):
    """Kill a sweep at random moments, then let it end: rows never change, and the table is that of a whole run.

    A moment is after a random number of further points, none too, and a random part of a second.
    """
    moments, known = random.Random(16), {}
    for _ in range(kills):
        sweep = started(points, folder, workers)
        wanted = len(known) + moments.randrange(len(rows(whole.with_name("a.sqlite"))) // kills)
        while counted(folder / "a.sqlite") < wanted and sweep.poll() is None:
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.3))
        started_by_it = children(sweep.pid, "popen_loky") if workers > 1 else []
        sweep.kill()
        sweep.communicate()
        assert ended(started_by_it)
        found = rows(folder / "a.sqlite")
        assert known.items() <= found.items()  # with the seconds that they took: none was computed again
        known = found
    last = started(points, folder, workers)
    told, problems = last.communicate(timeout=600)
    assert last.returncode == 0, problems
    total = len(rows(folder / "a.sqlite"))
    assert int(told) == total - len(known) and known.items() <= rows(folder / "a.sqlite").items()
    assert (folder / "rows.csv").read_bytes() == whole.read_bytes()
    return len(known)


def children(pid, word):
    """The processes that a process started whose command has this word."""
    with suppress(OSError):
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(p) for p in found if word in Path(f"/proc/{p}/cmdline").read_text()]
    return []


def ended(pids, seconds=20.0):
    """Whether these processes end in time."""
    until = time.monotonic() + seconds
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return not left


def counted(path):
    """How many rows there are, while others write."""
    with closing(sqlite3.connect(path)) as ledger, suppress(sqlite3.OperationalError):
        return ledger.execute("SELECT count(*) FROM rows").fetchone()[0]
    return 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The table of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    rc.sweep(config(SMALL), ledger=folder / "a.sqlite", export=folder / "rows.csv", progress=False)
    return folder / "rows.csv"


def test_a_sweep_killed_at_random_moments(whole, tmp_path):
    assert killed_often(SMALL, tmp_path, 1, 3, whole) > 0


@pytest.mark.full
def test_a_sweep_of_200_points_killed_ten_times(tmp_path):
    (tmp_path / "whole").mkdir()
    whole = tmp_path / "whole" / "rows.csv"
    rc.sweep(config(LARGE), ledger=tmp_path / "whole" / "a.sqlite", export=whole, progress=False)
    assert 0 < killed_often(LARGE, tmp_path, 2, 10, whole) < 200 == len(rows(tmp_path / "a.sqlite"))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the children of a process are read from /proc")
def test_a_killed_worker_loses_nothing(whole, tmp_path):
    sweep = started(SMALL, tmp_path, 2)
    workers = []
    while len(workers) < 2 and sweep.poll() is None:
        workers = children(sweep.pid, "popen_loky")
        time.sleep(0.02)
    while not counted(tmp_path / "a.sqlite") and sweep.poll() is None:
        time.sleep(0.02)
    os.kill(workers[0], signal.SIGKILL)
    told, problems = sweep.communicate(timeout=120)
    assert sweep.returncode == 0 and told.split() == ["16"], problems
    assert (tmp_path / "rows.csv").read_bytes() == whole.read_bytes()


def test_a_point_whose_process_dies_of_it_is_a_row_that_says_so(tmp_path, monkeypatch):
    done = job.Outcome

    def dying(given):
        if given.arguments["alpha"] == 2.0:
            os._exit(9)
        return done(given.key, "done", {"ok": True, "test_risk": given.arguments["alpha"]}, "", 0.0)

    monkeypatch.setattr(pool, "run", dying)
    few = config(SMALL | {"alpha": [1, 2, 3, 4], "nu": 1})
    found = rc.sweep(few, workers=2, ledger=tmp_path / "a", progress=False)
    assert [row["status"] for row in found.rows] == ["done", "failed", "done", "done"]
    assert found.rows[1]["reason"] == "the process that computed it was killed, or ran out of memory"


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))


def test_a_full_disk_ends_a_sweep_with_what_is_done_kept(whole, tmp_path):
    full = started(SMALL, tmp_path, 1, preexec_fn=limited)
    _, problems = full.communicate(timeout=120)
    kept = rows(tmp_path / "a.sqlite")
    assert full.returncode == 1 and 0 < len(kept) < 16
    assert f"{len(kept)} of 16 points are kept in {tmp_path / 'a.sqlite'}, and the same command goes on" in problems
    again = rc.sweep(config(SMALL), ledger=tmp_path / "a.sqlite", export=tmp_path / "rows.csv", progress=False)
    assert again.computed == 16 - len(kept) and (tmp_path / "rows.csv").read_bytes() == whole.read_bytes()


CLUSTER = """
import json, os, signal, sqlite3, sys, threading, time
from contextlib import closing, suppress
from distributed import LocalCluster
from replicode.verbs.sweep import sweep

def kill(victim):
    count = 0
    while not count:
        time.sleep(0.05)
        with closing(sqlite3.connect(sys.argv[2])) as rows, suppress(sqlite3.OperationalError):
            count = rows.execute("SELECT count(*) FROM rows").fetchone()[0]
    os.kill(victim, signal.SIGKILL)

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        victim = cluster.workers[0].process.pid
        killer = threading.Thread(target=kill, args=(victim,), daemon=True)
        killer.start()
        where = {"scheduler": cluster.scheduler_address, "ledger": sys.argv[2], "export": sys.argv[3]}
        found = sweep(json.loads(sys.argv[1]), **where)
        killer.join()
        print(found.computed)
"""


def test_a_dask_cluster_gives_the_same_and_a_killed_worker_loses_nothing(whole, tmp_path):
    pytest.importorskip("distributed", reason="Dask is not installed: the extra is replicode[dask]")
    (tmp_path / "cluster.py").write_text(CLUSTER)
    given = [json.dumps(config(SMALL)), tmp_path / "a.sqlite", tmp_path / "rows.csv"]
    command = [sys.executable, tmp_path / "cluster.py", *given]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0 and found.stdout.split() == ["16"], found.stderr
    assert (tmp_path / "rows.csv").read_bytes() == whole.read_bytes()
