"""What a worker runs: one point, in any process on any machine, and what came of it, as data in any case."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from replicode.codegen.threads import one_thread
from replicode.results import Result
from replicode.sweeps.point import Point, program, verb_of
from replicode.theory.budget import BudgetSpent
from replicode.theory.errors import InputError, Refusal
from replicode.theory.registry import ACTIVATIONS, TASKS, Registered
from replicode.uncertain import with_error
from replicode.validation.ledger import DONE

REFUSED, FAILED, FOREIGN = "refused", "failed", "foreign"
LOOK = 1.0  # seconds between two looks for the process that started this one


class Name(NamedTuple):
    """A registered name of an activation or a task, what it stands for, and the same as text of the language."""

    kind: str
    name: str
    meaning: Registered
    text: str


class Job(NamedTuple):
    """A point with all that a process needs which was started for it; `owner` is the process it must not outlive."""

    key: str
    verb: str
    arguments: Mapping[str, Any]
    names: tuple[Name, ...]
    program: str
    owner: int | None


class Outcome(NamedTuple):
    """The row of a point; `said` is the result in a few words."""

    key: str
    status: str
    payload: Mapping[str, Any]
    said: str
    seconds: float


def job_of(point: Point, owner: int | None) -> Job:
    """The job of a point."""
    return Job(point.key, point.verb, point.call(), _names(point), program(point.verb), owner)


def _names(point: Point) -> tuple[Name, ...]:
    """What the registered names of a point stand for: another process may not have registered them."""
    given = dict(point.arguments)
    tables = {"activation": ACTIVATIONS, "task": TASKS}
    return tuple(
        Name(kind, given[kind], table[given[kind]], _as_text(kind, given[kind], table[given[kind]]))
        for kind, table in tables.items()
        if given.get(kind) in table
    )


@lru_cache(maxsize=256)
def _as_text(kind: str, name: str, _: Registered) -> str:
    """The expression of a name in the language, which any process can read."""
    from replicode.theory.language.activation import activation
    from replicode.theory.language.task import task

    return activation(name).text if kind == "activation" else task(name).text


def run(job: Job) -> Outcome:
    """The outcome of a job: a result, a refusal or a failure with its reason. Only an interrupt gets through."""
    if job.program != program(job.verb):
        return Outcome(job.key, FOREIGN, {}, "the worker has another version of Replicode, NumPy, SciPy or SymPy", 0.0)
    if job.owner is not None and job.owner != os.getpid():
        _end_with(job.owner)
    begin = time.perf_counter()
    status, payload, said = _outcome(job)
    return Outcome(job.key, status, payload, said, time.perf_counter() - begin)


def _outcome(job: Job) -> tuple[str, dict[str, Any], str]:
    try:
        _register(job.names)
        with one_thread():
            found = verb_of(job.verb)(**job.arguments)
        return DONE, {"ok": found.ok, **found.to_dict()}, _said(found)
    except BudgetSpent as problem:  # another machine, or a larger budget, may have it
        return FAILED, *_reason(str(problem))
    except (InputError, Refusal) as problem:
        return REFUSED, *_reason(str(problem))
    except Exception as problem:
        return FAILED, *_reason(f"{type(problem).__name__}: {problem}")


def _reason(text: str) -> tuple[dict[str, Any], str]:
    return {"ok": False, "reason": text, "warnings": [text]}, text


def lost(job: Job) -> Outcome:
    """The outcome of a job whose process died of it, twice."""
    payload, said = _reason("the process that computed it was killed, or ran out of memory")
    return Outcome(job.key, FAILED, payload, said, 0.0)


def _said(found: Result) -> str:
    """The first number of a result with its error, or the first word."""
    name = found.headline[0]
    value, error = getattr(found, name), getattr(found, "error", None)
    if not isinstance(value, float) or error is None:
        return f"{name} {value}"
    return f"{name} {with_error(value, float(error))}"


def _register(names: tuple[Name, ...]) -> None:
    """Register the names that stand for something else here, or for nothing."""
    for kind, name, meaning, text in names:
        table = ACTIVATIONS if kind == "activation" else TASKS
        if table.get(name) == meaning:
            continue
        from replicode.theory.language.activation import register
        from replicode.theory.language.task import register_task

        register(name, text, dict(meaning.defaults)) if kind == "activation" else register_task(name, text)
        table[name] = meaning


@lru_cache(maxsize=1)
def _end_with(owner: int) -> None:
    """A worker whose sweep was killed would stay for minutes: it looks every second, and ends."""
    if os.getppid() == owner:
        threading.Thread(target=_watch, args=(owner,), daemon=True).start()


def _watch(owner: int) -> None:
    while os.getppid() == owner:
        time.sleep(LOOK)
    os._exit(1)
