"""Jobs on the cores of this machine or on a Dask cluster, by joblib in both cases; an outcome comes once it is there.

A worker that dies loses nothing: the jobs that were with the workers are done again one by one, and a job whose process
dies again is a failure of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import Any

from replicode.sweeps.job import Job, Outcome, lost, run
from replicode.theory.errors import InputError, ReplicodeError

SCHEMES = "tcp://", "tls://"
ANSWER = 10.0  # seconds for a scheduler to answer


def check_scheduler(address: str | None) -> None:
    """An error where there is no way to reach a scheduler."""
    if address is not None and not find_spec("distributed"):
        raise ReplicodeError("Dask is not installed: install the extra, pip install 'replicode[dask]'")
    if address is not None and not address.startswith(SCHEMES):
        raise InputError("scheduler", address, "the address of a Dask scheduler, as in tcp://host:8786")


def outcomes(jobs: Sequence[Job], workers: int, scheduler: str | None) -> Iterator[Outcome]:
    """The outcome of every job, in the order in which they come."""
    left = {job.key: job for job in jobs}
    with _backend(workers, scheduler) as many:
        while left:
            sent: dict[str, Job] = {}
            try:
                with closing(_parallel(_noted(left.values(), sent), many)) as found:
                    for outcome in found:
                        del left[outcome.key], sent[outcome.key]
                        yield outcome
            except _deaths():
                for job in sent.values():
                    del left[job.key]
                    yield _alone(job, many)


def owner(workers: int, scheduler: str | None) -> int | None:
    """The process that the workers must not outlive: this one, where they are its own."""
    return os.getpid() if scheduler is None and workers > 1 else None


def _noted(jobs: Iterable[Job], sent: dict[str, Job]) -> Iterator[Job]:
    """The jobs, each noted when it is sent to a worker."""
    for job in list(jobs):
        sent[job.key] = job
        yield job


def _parallel(jobs: Iterable[Job], many: int) -> Any:
    from joblib import Parallel, delayed

    # One job at a time, so that what is done is kept at once; twice as many as workers, so that none waits.
    return Parallel(n_jobs=many, batch_size=1, pre_dispatch="2*n_jobs", return_as="generator_unordered")(
        delayed(run)(job) for job in jobs
    )


def _alone(job: Job, many: int) -> Outcome:
    """A job with no other beside it, in a process of its own."""
    try:
        (outcome,) = _parallel([job], many if many < 0 else max(many, 2))
    except _deaths():
        return lost(job)
    return Outcome(*outcome)


def _deaths() -> tuple[type[Exception], ...]:
    """What is raised when a worker died."""
    from concurrent.futures.process import BrokenProcessPool

    if not find_spec("distributed"):
        return (BrokenProcessPool,)
    from distributed import KilledWorker

    return BrokenProcessPool, KilledWorker


@contextmanager
def _backend(workers: int, scheduler: str | None) -> Iterator[int]:
    """joblib set to this machine's processes or to the cluster; gives the number of jobs at a time, -1 for all."""
    from joblib import parallel_config

    if scheduler is None:
        with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
            yield workers
        return
    with _client(scheduler) as client, parallel_config("dask", client=client, wait_for_workers_timeout=ANSWER):
        yield -1


@contextmanager
def _client(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=ANSWER, set_as_default=False)
    except (OSError, ValueError, ImportError) as problem:
        allowed = f"the address of a Dask scheduler that answers ({' '.join(str(problem).split())[:200]})"
        raise InputError("scheduler", address, allowed) from None
    with client:
        yield client
