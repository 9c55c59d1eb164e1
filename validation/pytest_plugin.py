"""A pytest fixture that runs the property library on an activation, as `replicode check` does.

def test_mine(replicode_properties):
    replicode_properties("exp(x)/sum(exp(x)) + 0.01*x", require=["equivariance", "energy identity"])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from replicode.theory.language.activation import Activation
    from replicode.theory.language.task import Task
    from replicode.validation.properties import Verdict


class PropertyRun(Protocol):
    """What the fixture hands to a test."""

    def __call__(
        self,
        act: str | Activation,
        task: str | Task = "spiked",
        tokens: int | None = None,
        *,
        names: Sequence[str] | None = None,
        require: Sequence[str] = (),
        **parameters: float,
    ) -> dict[str, Verdict]:
        """Fail the test where a property fails, or one that is required does not apply; else the verdicts."""


def run_properties(
    act: str | Activation,
    task: str | Task = "spiked",
    tokens: int | None = None,
    *,
    names: Sequence[str] | None = None,
    require: Sequence[str] = (),
    **parameters: float,
) -> dict[str, Verdict]:
    """Run the named properties, by default all that `replicode check` runs, and fail the test that calls this."""
    from replicode.theory.errors import InputError
    from replicode.validation.properties import LONGER, PROPERTIES, examined, outcomes

    chosen = tuple(PROPERTIES) if names is None else tuple(names)
    known = (*PROPERTIES, *LONGER)
    if unknown := [n for n in (*chosen, *require) if n not in known]:
        raise InputError("names", unknown, f"names among {', '.join(known)}")
    chosen = tuple(dict.fromkeys((*chosen, *require)))
    verdicts = outcomes(examined(act, task, tokens, **parameters), chosen)
    wrong = [f"{n}: {v.detail}" for n, v in verdicts.items() if v.outcome == "failed"]
    absent = [f"{n} is required, but {v.detail}" for n, v in verdicts.items() if n in require and _absent(v)]
    if wrong or absent:
        pytest.fail(f"{act}, task {task}: " + "; ".join([*wrong, *absent]), pytrace=False)
    return verdicts


def _absent(verdict: Verdict) -> bool:
    return verdict.outcome == "not applicable"


@pytest.fixture
def replicode_properties() -> PropertyRun:
    """Runs the properties of an activation and fails the test where one of them does."""
    return run_properties
