"""What the verbs return: frozen values with one small protocol, importable so that they travel between processes.

Every result has `ok`, `warnings`, `asked` (what was asked for), `version` (by which Replicode it was computed),
`to_dict()` (the keys that `--json` prints), a short repr and a table for notebooks.
"""

from __future__ import annotations

import html
import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from replicode import __version__
from replicode.inputs.arguments import DOUBLE_DIGITS, FLOAT_DIGITS
from replicode.uncertain import with_error, written

_LAST = ("warnings", "asked", "version")
_UNREAD = ("asked", "version", "errors", "bayes_error")
_STRUCTURED = ("norm2_k", "norm2_v", "effective_rank")  # reported with a spectrum alone


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """The protocol; `warnings` say what is not to be trusted."""

    headline: ClassVar[tuple[str, ...]] = ()
    bounded: ClassVar[tuple[str, ...]] = ()  # the numbers whose error is `error`
    warnings: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__

    @property
    def ok(self) -> bool:
        """Whether the result is to be trusted as it stands; a verdict is that training agrees with the theory."""
        return not self.warnings and getattr(self, "verdict", "agrees") == "agrees"

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain dicts, lists and numbers, ready for JSON; what was asked comes last."""
        return {name: plain(value) for name, value in self._fields().items()}

    def bounds(self) -> Mapping[str, float | None]:
        """The errors of its numbers, by name."""
        return {name: getattr(self, "error", None) for name in self.bounded}

    def shown(self) -> dict[str, Any]:
        """What people read: the result without what they have just typed, every number to its error."""
        bounds = self.bounds()
        found = {name: value for name, value in self.to_dict().items() if name not in _UNREAD}
        return written(found, bounds) if bounds else found

    def _fields(self) -> dict[str, Any]:
        own = [f.name for f in fields(self) if f.name not in _LAST]
        return {name: getattr(self, name) for name in (*own, *_LAST)}

    def __repr__(self) -> str:
        shown = [f"{name}={_short(getattr(self, name))}" for name in self.headline]
        count = len(self.warnings)
        told = [f"{count} warning{'s' * (count > 1)}"] if count else []
        return f"{type(self).__name__}({', '.join([*shown, *told])})"

    def _repr_html_(self) -> str:
        rows = [f"<tr><th>{html.escape(n)}</th><td>{html.escape(_shown(v))}</td></tr>" for n, v in _flat(self)]
        return f"<table>{''.join(rows)}</table>"


def plain(value: Any) -> Any:
    """Mappings as dicts, sequences as lists, NumPy's numbers as Python's; anything else as it is."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    item = getattr(value, "item", None)
    return item() if isinstance(value, numbers.Number) and callable(item) else value


def finite(value: Any) -> Any:
    """JSON-ready: numbers that are not finite become null."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, (list, tuple)) else value


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:40]


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_shown(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(_shown(part) for part in value)
    return f"{value:.10g}" if isinstance(value, float) else str(value)[:200]


def _flat(result: Result) -> Iterator[tuple[str, Any]]:
    """The rows of a table: everything that has a value."""
    yield from ((name, value) for name, value in result.to_dict().items() if value not in (None, [], {}, ""))


@dataclass(frozen=True, repr=False)
class Solution(Result):
    """A solved saddle point; `error` bounds the absolute error of test_risk, `errors` those of the other quantities.

    `rsb` has one step of replica symmetry breaking at the same point, where it was asked for or replica symmetry is not
    stable and the step is quick. `branches` are all solutions that a search found, the least energy first, and `tried`
    says how it searched, where that was asked for.
    """

    headline = ("test_risk", "error", "converged", "rs_stable")

    test_risk: float
    excess_risk: float
    train_loss: float
    energy: float
    order_parameters: Mapping[str, float]
    conjugates: Mapping[str, float]
    converged: bool
    iterations: int
    residual: float
    error: float
    rs_stable: bool
    replicon: float
    jump_weight: float
    folded_mass: float
    method: str
    bayes_risk: float | None
    bayes_error: float | None = None
    errors: Mapping[str, float] = field(default_factory=dict)
    derivatives: Mapping[str, Mapping[str, float]] | None = None
    derivative_errors: Mapping[str, Mapping[str, float]] | None = None
    derivative_methods: Mapping[str, str] | None = None
    norm2_k: float | None = None
    norm2_v: float | None = None
    effective_rank: float | None = None
    rsb: Mapping[str, Any] | None = None
    test_loss: float | None = None
    classification_error: float | None = None
    branches: tuple[Mapping[str, Any], ...] | None = None
    tried: tuple[str, ...] | None = None

    def _asdict(self) -> dict[str, Any]:
        """The fields by name."""
        return self._fields()

    def _replace(self, **changes: Any) -> Self:
        """The same solution with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The fields ready for JSON; beyond what a float holds, numbers are text with no digit that is not known."""
        return self._told(FLOAT_DIGITS)

    def bounds(self) -> Mapping[str, float | None]:
        """The errors of its numbers, by name."""
        risks = {"test_risk": self.error, "excess_risk": self.error, "bayes_risk": self.bayes_error}
        return {**self.errors, **risks}

    def shown(self) -> dict[str, Any]:
        """What people read; beyond double precision the digits that are known, with the errors beside them."""
        if (self.asked.get("digits") or 0) <= DOUBLE_DIGITS:
            found = super().shown() | self._step_shown()
        else:
            found = {n: value for n, value in self._told(DOUBLE_DIGITS).items() if n not in ("asked", "version")}
        unread = {n for n in found if n.startswith("derivative") or (n == "rsb" and found[n] is None)}
        return {n: value for n, value in found.items() if n not in unread} | self._risk_slopes()

    def _step_shown(self) -> dict[str, Any]:
        """One step of breaking, its numbers to its own errors."""
        if not self.rsb:
            return {}
        own, error = dict(plain(self.rsb)), self.rsb["error"]
        bounds = {**own.pop("errors"), "test_risk": error, "excess_risk": error}
        return {"rsb": written(own, bounds)}

    def _risk_slopes(self) -> dict[str, Any]:
        """Of the derivatives those of the test risk, each to its error; the JSON has all."""
        slopes, errors = self.derivatives or {}, self.derivative_errors or {}
        rows = {name: with_error(s["test_risk"], errors[name]["test_risk"]) for name, s in slopes.items()}
        return {"d test_risk / d": rows} if rows else {}

    def _told(self, most: int) -> dict[str, Any]:
        found, digits = super().to_dict(), self.asked.get("digits") or 0
        found = {name: value for name, value in found.items() if name not in _STRUCTURED or value is not None}
        for name in ("test_loss", "classification_error", "branches", "tried"):  # where there are any
            if found[name] is None:
                del found[name]
        if digits <= most:
            return found
        from replicode.verbs.precise import as_texts

        return as_texts(found, digits)


@dataclass(frozen=True, repr=False)
class Report(Result):
    """Theory against trained attention, quantity by quantity, with a verdict and the power it had."""

    headline = ("verdict", "p_value", "dim", "seeds")

    theory: Mapping[str, float | None]
    trained: Mapping[str, Mapping[str, float | None]]
    dim: int
    dims: tuple[int, ...]
    seeds: int
    failures: int
    verdict: str
    p_value: float | None
    power: float | None
    seeds_needed: int | None
    bayes_risk: float | None


@dataclass(frozen=True, repr=False)
class LandscapeReport(Result):
    """Minima of the training objective against the theories: RS, and equilibrium and threshold of one step.

    `families` are the kinds of starts, `lowest` is over the lowest minimum of every data set, `overlaps` are those of
    pairs of minima on the same data.
    """

    headline = ("dim", "starts", "seeds")

    theory: Mapping[str, Any]
    families: Mapping[str, Mapping[str, Any]]
    lowest: Mapping[str, Any]
    overlaps: Mapping[str, Mapping[str, Any]]
    failures: int
    dim: int
    starts: int
    seeds: int
    figure: str | None


@dataclass(frozen=True, repr=False)
class CheckResult(Result, Mapping[str, Any]):
    """What `check` found, by name, and as a mapping of the same names."""

    headline = ("activation",)

    found: Mapping[str, Any]

    @property
    def activation(self) -> str:
        """The activation that was checked."""
        return str(self.found["activation"])

    @property
    def ok(self) -> bool:
        """Whether no property failed."""
        return "failed" not in self.found["properties"].values()

    def to_dict(self) -> dict[str, Any]:
        """All that was found, ready for JSON."""
        last = {name: plain(getattr(self, name)) for name in _LAST}
        return {**plain(self.found), **last}

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())
