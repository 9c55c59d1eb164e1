"""The points of the finite-sample figure, each kept in a ledger: Bayes-optimal, theory, and trained attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any, NamedTuple

import numpy as np

from replicode.cache import once
from replicode.inputs.content import Content, activation_content, task_content
from replicode.modules import call, module_for
from replicode.results import plain
from replicode.validation.data.sampling import Array
from replicode.validation.experiment import run
from replicode.validation.ledger import training_source
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.comparison import extrapolate

RESOLUTION = 0.02  # of the best lambdas, in logarithms: the risk is flat there, and its error far larger
WAY, GAIN = 4.0, 0.1  # of the error asked for: solutions on the way, and what is left to gain at the end


class Place(NamedTuple):
    """Where a point is: activation (empty for Bayes), task, tokens, nu, noise and alpha."""

    activation: str
    task: str
    tokens: int
    nu: float
    noise: float
    alpha: float

    @property
    def content(self) -> Content:
        """What the names stand for, and the numbers."""
        return activation_content(self.activation), task_content(self.task), *self[2:]


class Ridge(NamedTuple):
    """A pair of regularisations."""

    lambda_k: float
    lambda_v: float


_EMPTY: dict[str, Any] = dict.fromkeys(
    (
        *("kind", *Place._fields, "lambda_k", "lambda_v", "test_risk", "error", "standard_error", "z", "adjusted_p"),
        *("dims", "seeds", "root_seed", "failures", "means_by_dim", "converged", "rs_stable", "replicon"),
        *("jump_weight", "hard_phase", "q_k", "q_v", "m_k", "m_v", "method", "evaluations", "at_bound", "bayes_gap"),
        "warnings",
    )
)
_KEPT = ("test_risk", "error", "converged", "rs_stable", "replicon", "jump_weight", "method")


def _row(kind: str, place: Place, payload: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row with all columns; those that its kind does not have are None."""
    known = {name: value for name, value in payload.items() if name in _EMPTY}
    return _EMPTY | {"kind": kind, **place._asdict(), "warnings": [], **more, **known}


def bayes_point(place: Place, tolerance: float) -> dict[str, Any]:
    """The Bayes-optimal risk, at least as good as the tolerance."""

    def build() -> dict[str, Any]:
        from replicode.verbs.bayes import bayes

        digits = max(1, -floor(log10(tolerance)))
        law: dict[str, Any] = {"nu": place.nu, "noise": place.noise, "alpha": place.alpha}
        found = bayes(task=place.task, tokens=place.tokens, **law, digits=digits)
        return {
            "test_risk": found.test_risk,
            "error": found.error,
            "converged": found.converged,
            "hard_phase": found.hard_phase,
            **found.order_parameters,
            "warnings": list(found.warnings),
        }

    return _row("bayes", place, once("figure", ("bayes", place.content, tolerance), build))


def _solved(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of the theory has of a solution, as JSON holds it."""
    order = {name: float(fields["order_parameters"][name]) for name in ("m_k", "q_k", "m_v", "q_v")}
    return {**plain({name: fields[name] for name in _KEPT}), **order, "warnings": list(fields["warnings"])}


def theory_point(place: Place, ridge: Ridge, tolerance: float) -> dict[str, Any]:
    """The replica-symmetric theory of the trained estimator."""

    def build() -> dict[str, Any]:
        module, settled = module_for(place.activation, place.task, place.tokens)
        setting = {"alpha": place.alpha, "nu": place.nu, "noise": place.noise, **ridge._asdict()}
        found = call(module, "solve", **setting, tol=tolerance, **settled)
        return _solved(found._asdict())

    return _row("theory", place, once("figure", ("theory", place.content, *ridge, tolerance), build), **ridge._asdict())


def optimal_point(place: Place, start: Ridge, tolerance: float) -> dict[str, Any]:
    """The theory at the lambdas of the least test risk, searched for from a pair nearby."""

    def build() -> dict[str, Any]:
        from replicode.inputs.problem import problem
        from replicode.verbs.optimal import Thrift, best

        physics = {"alpha": place.alpha, "nu": place.nu, "noise": place.noise, **start._asdict()}
        found = best(
            problem(place.activation, place.task, place.tokens, physics),
            Ridge._fields,
            tolerance,
            thrift=Thrift(RESOLUTION, WAY * tolerance, GAIN * tolerance, inside=False),
        )
        optimum = {name: float(found["optimum"][name]) for name in Ridge._fields}
        more = {"evaluations": found["evaluations"], "at_bound": list(found["at_bound"])}
        return {**_solved(found), **optimum, **more}

    return _row(
        "theory", place, once("figure", ("optimal", place.content, *start, tolerance, RESOLUTION, WAY, GAIN), build)
    )


def trained_point(
    place: Place, ridge: Ridge, dims: Sequence[int], seeds: int, root_seed: int
) -> tuple[dict[str, Any], dict[int, Array]]:
    """Trained attention from the informed start: the test risk extrapolated to infinite D, and all values by D."""

    def build() -> dict[str, Any]:
        module, settled = module_for(place.activation, place.task, place.tokens)
        params = np.array([settled[p] for p in module.PARAMETERS])
        attention = GeneratedAttention(module, place.nu, place.noise, params)
        start, law = attention.start("informed"), attention.setting(place.alpha)
        found = run(law, attention, ridge, start, attention.risk, dims, seeds, root_seed)
        return {
            "values": {str(dim): [float(v) for v in found.values["test_risk"][dim]] for dim in dims},
            "failures": len(found.failures),
        }

    key = ("trained", place.content, *ridge, tuple(dims), seeds, root_seed, training_source())
    payload = once("figure", key, build)
    values = {dim: np.array(payload["values"][str(dim)]) for dim in dims}
    run_as = {**ridge._asdict(), "dims": tuple(dims), "seeds": seeds, "root_seed": root_seed}
    return _row("trained", place, payload | _extrapolated(values), **run_as), values


def _extrapolated(values: dict[int, Array]) -> dict[str, Any]:
    """The limit with its standard error, and the mean at every D; nothing where too few trainings converged."""
    means = {f"D{dim}": float(sample.mean()) for dim, sample in values.items() if sample.size}
    if not any(sample.size > 1 for sample in values.values()):
        return {"means_by_dim": means, "warnings": ["too few trainings converged"]}
    limit = extrapolate(values)
    return {"test_risk": limit.mean, "standard_error": limit.sem, "means_by_dim": means}
