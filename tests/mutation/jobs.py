"""What a mutant is, and the two kinds of job that may catch it: properties of an activation, and tests of the suite."""

from typing import NamedTuple


class Job(NamedTuple):
    """Properties of an activation; `bare` jobs derive and generate nothing."""

    text: str
    names: tuple[str, ...]
    task: str = "spiked"
    tokens: int = 2
    bare: bool = False


class Checks(NamedTuple):
    """Tests of one file under tests/, named as pytest names them, all of their parameters unless one is named."""

    file: str
    names: tuple[str, ...]


class Mutant(NamedTuple):
    """`old` in `path` becomes `new`; `ordinary` ones run in every test run, `survives` says why one goes unnoticed."""

    name: str
    path: str
    old: str
    new: str
    jobs: tuple[Job | Checks, ...]
    ordinary: bool = False
    survives: str = ""
