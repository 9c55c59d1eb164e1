"""`dynamics`: overlaps and test risk along one-pass SGD, or in the limit of small steps, in high dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from replicode.codegen.threads import one_thread
from replicode.inputs.arguments import error_asked, not_negative, positive
from replicode.inputs.asked import asked
from replicode.inputs.learned import LABELS, LOSS, learned, named
from replicode.modules import call, module_for
from replicode.results import Result
from replicode.theory.errors import InputError
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.limits import given_parameters, whole_number

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task
    from replicode.theory.model import Model

MOST_POINTS, MOST_DIM, MOST_SEEDS = 100_000, 20_000, 10_000


@dataclass(frozen=True, repr=False)
class Dynamics(Result):
    """A trajectory; `error` bounds the error of test_risk at all times, `errors` those of the overlaps.

    `escape` is when the loss is half-way from the plateau to its end, `convergence` from when on nothing moves.
    `test_loss` is the average loss of a fresh sequence, where it is no square on Gaussian labels.
    `simulated` has means and standard errors of SGD on tokens, `compare` the trajectories of other activations, and
    `first_escape` says which of them all leaves the plateau first.
    """

    headline = ("error", "escape", "convergence", "diverged")

    time: tuple[float, ...]
    test_risk: tuple[float, ...]
    order_parameters: Mapping[str, tuple[float, ...]]
    plateau_risk: float
    escape: float | None
    convergence: float | None
    diverged: bool
    rates: Mapping[str, float]
    error: float
    errors: Mapping[str, float]
    test_loss: tuple[float, ...] | None = None
    fixed_points: tuple[Mapping[str, Any], ...] | None = None
    plateau: Mapping[str, Any] | None = None
    critical_rate: float | None = None
    simulated: Mapping[str, Any] | None = None
    compare: Mapping[str, Mapping[str, Any]] | None = None
    first_escape: str | None = None

    def shown(self) -> dict[str, Any]:
        """What people read: where it ends, instead of every time."""
        found = super().shown()
        last = {name: values[-1] for name, values in self.order_parameters.items()}
        ends = {"time": self.time[-1], "test_risk": self.test_risk[-1], "order_parameters": last}
        ends |= {} if self.test_loss is None else {"test_loss": self.test_loss[-1]}
        others = {"compare": {n: _summary(c) for n, c in (self.compare or {}).items()}, "simulated": None}
        return {name: value for name, value in (found | ends | others).items() if value not in (None, {})}


def _summary(curve: Mapping[str, Any]) -> dict[str, Any]:
    return {"test_risk": curve["test_risk"][-1], "escape": curve["escape"], "convergence": curve["convergence"]}


def dynamics(
    act: ActivationLike,
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    nu: float,
    rate: float,
    time: float,
    noise: float = 0.0,
    start: Mapping[str, float] | None = None,
    rate_v: float | None = None,
    lambda_k: float = 0.0,
    lambda_v: float = 0.0,
    batch: int = 1,
    flow: bool = False,
    spherical: bool = False,
    points: int = 101,
    digits: int | None = None,
    fixed_points: bool = False,
    compare: Sequence[ActivationLike] = (),
    dim: int | None = None,
    seeds: int = 16,
    loss: str = LOSS,
    labels: str = LABELS,
    model: Model | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> Dynamics:
    """The trajectory from a start to time = steps/D; with `flow` the limit of small steps, rates being speeds.

    Overlaps that `start` does not name are 0, norms 0.01 or what their m needs. A `rate_v` of 0 keeps v fixed, and
    `spherical` keeps both norms. `loss` and `labels` are those of `solve`. `fixed_points` adds these, the plateau and
    the largest step size; `dim` adds SGD on tokens in that dimension, over `seeds` runs.
    """
    law, values, model = lengths(tokens), given_parameters(parameters, more), learned(model, loss, labels)
    how = {
        "nu": not_negative("nu", nu, infinite=True),
        "noise": not_negative("noise", noise),
        "rate": positive("rate", rate),
        "time": positive("time", time),
        "rate_v": None if rate_v is None else not_negative("rate_v", rate_v),
        "lambda_k": not_negative("lambda_k", lambda_k),
        "lambda_v": not_negative("lambda_v", lambda_v),
        "batch": whole_number("batch", batch, 1, 10**6),
        "flow": bool(flow),
        "spherical": bool(spherical),
    }
    grid = whole_number("points", points, 2, MOST_POINTS)
    tolerance = error_asked(digits, 10)
    size = None if dim is None else whole_number("dim", dim, 4, MOST_DIM)
    runs = whole_number("seeds", seeds, 2, MOST_SEEDS)
    if size is not None and flow:
        raise InputError("dim", dim, "nothing with flow: steps on tokens have a size")
    if flow and how["batch"] != 1:
        raise InputError("batch", batch, "1 with flow: how many sequences a step takes makes no difference to it")
    if isinstance(compare, str) or not isinstance(compare, Sequence):
        raise InputError("compare", compare, "a list of activations")
    begin = _checked_start(start)

    def solved(of: ActivationLike, given: Mapping[str, float]) -> tuple[ModuleType, dict[str, float], Any]:
        module, own = module_for(of, task, law, given=given, model=model, level="dynamics")
        return module, own, call(module, "solve", **how, start=begin, points=grid, tol=tolerance, **own)

    with one_thread():
        module, own, found = solved(act, _of_main(act, compare, values))
        extra = _points(module, how, begin, own) if fixed_points else {}
        if size is not None:
            extra |= {"simulated": simulated(module, how, found, size, runs, own, model)}
        curves = {_label(a): solved(a, _own(a, values))[2]._asdict() for a in compare}
    if curves:
        extra |= {"compare": curves, "first_escape": _first({_label(act): found._asdict(), **curves})}
    warnings = (*found.warnings, *(f"{name}: {w}" for name, c in curves.items() for w in c["warnings"]))
    options = {**how, "start": dict(begin), "points": grid, "digits": digits, "dim": size, "seeds": runs}
    stamp = asked(act, task, law, own, model, **options, **named(loss, labels), compare=[_label(a) for a in compare])
    return Dynamics(**(found._asdict() | {"warnings": warnings}), **extra, asked=stamp)


def _checked_start(start: Mapping[str, float] | None) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in dict(start or {}).items()}
    except (TypeError, ValueError):
        raise InputError("start", start, "numbers by the names of overlaps, as in m_k=0.1,q_k=1") from None


def _of_main(
    act: ActivationLike, compare: Sequence[ActivationLike], values: Mapping[str, float]
) -> Mapping[str, float]:
    """The parameters without those that belong to others alone."""
    if not (compare and values):
        return values
    from replicode.theory.language.activation import activation

    others = {p for a in compare for p in activation(a).parameters} - set(activation(act).parameters)
    return {name: value for name, value in values.items() if name not in others}


def _label(act: ActivationLike) -> str:
    return act if isinstance(act, str) else getattr(act, "name", str(act))


def _own(act: ActivationLike, values: Mapping[str, float]) -> dict[str, float]:
    """The parameters that an activation has."""
    from replicode.theory.language.activation import activation

    return {name: value for name, value in values.items() if name in activation(act).parameters}


def _first(curves: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Which of them escapes first."""
    escaped = {name: c["escape"] for name, c in curves.items() if c["escape"] is not None}
    return min(escaped, key=lambda name: float(escaped[name])) if escaped else None


def _points(
    module: ModuleType, how: Mapping[str, Any], begin: Mapping[str, float], own: Mapping[str, float]
) -> dict[str, Any]:
    """Fixed points with their stability, the plateau, and the step size above which nothing attracts."""
    at = {name: value for name, value in how.items() if name not in ("time", "spherical")}
    found = call(module, "fixed_points", **at, starts=(begin,), **own)
    level = {name: value for name, value in how.items() if name != "time"}
    flat = call(module, "plateau", **level, start=begin, **own)
    ratio = 1.0 if how["rate_v"] is None else how["rate_v"] / how["rate"]
    kept = {name: how[name] for name in ("nu", "noise", "lambda_k", "lambda_v", "batch")}
    largest = call(module, "critical_rate", **kept, ratio=ratio, **own)
    points = tuple(p._asdict() for p in found)
    return {"fixed_points": points, "plateau": flat._asdict(), "critical_rate": largest}


def simulated(
    module: ModuleType,
    how: Mapping[str, Any],
    found: Any,
    dim: int,
    seeds: int,
    own: Mapping[str, float],
    model: Model | None = None,
) -> dict[str, Any]:
    """SGD on tokens that are drawn as they come: means and standard errors of the overlaps at the same times."""
    import numpy as np

    from replicode.theory.model import DEFAULT_MODEL
    from replicode.validation.training.stream import OVERLAPS, Descent, Stream, descend

    stream = Stream.of(module, how["nu"], how["noise"], [own[p] for p in module.PARAMETERS], model or DEFAULT_MODEL)
    rate_v = how["rate"] if how["rate_v"] is None else how["rate_v"]
    descent = Descent(how["rate"], rate_v, how["lambda_k"], how["lambda_v"], how["batch"], how["spherical"])
    begin = np.array([found.order_parameters[name][0] for name in OVERLAPS])
    overlaps = descend(stream, descent, begin, dim, seeds, found.time, np.random.default_rng(0))
    mean, deviation = overlaps.mean(axis=1), overlaps.std(axis=1, ddof=1)
    return {
        "dim": dim,
        "seeds": seeds,
        "mean": {n: mean[:, i].tolist() for i, n in enumerate(OVERLAPS)},
        "deviation": {n: deviation[:, i].tolist() for i, n in enumerate(OVERLAPS)},
    }
