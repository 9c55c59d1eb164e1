"""`curve`: test risk and order parameters of one or several activations along one parameter, beside the Bayes line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicode.branches.bayes_line import BayesLine, Solved, bayes_line
from replicode.branches.tracing import USUAL_ERROR, Traced, Tracer
from replicode.figures.beside import saved
from replicode.figures.curves import draw
from replicode.figures.drawing import picture_asked_for
from replicode.inputs.arguments import error_asked
from replicode.inputs.content import activation_text
from replicode.inputs.learned import LABELS, LOSS, ModelTexts, signal
from replicode.inputs.problem import problem
from replicode.inputs.ranges import Range, axes_of
from replicode.inputs.spectrum import SpectrumLike
from replicode.results import Result
from replicode.theory.errors import InputError, ReplicodeError
from replicode.theory.lengths import Tokens
from replicode.verbs.optimal import OVER
from replicode.verbs.solve import bayes_reference, slow_bayes

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task
    from replicode.theory.model import Model

TRAINED_MARKS, TRAINED_DIM, TRAINED_SEEDS = 4, 200, 10
SAID = (  # of nodes, by how their warnings begin
    ("error", "the error is more than was asked for {at}: up to {error:.1e}"),
    ("jumps", "{at} the error does not cover global minima that the search missed"),
)
Say = Callable[[str], None]
OnNode = Callable[[str, float, Mapping[str, Any]], None]


@dataclass(frozen=True, repr=False)
class Curve(Result):
    """Columns along `values` of `parameter`, for every activation; `nodes` are the values that were solved at.

    Between nodes numbers are interpolated with the derivatives, and `error` bounds that too. `bayes_risk` and its error
    are columns of every activation; `trained` are means and standard errors of trained attention where that was asked
    for.
    """

    headline = ("parameter", "activations")

    parameter: str
    values: tuple[float, ...]
    activations: Mapping[str, Mapping[str, tuple[Any, ...]]]
    nodes: Mapping[str, tuple[float, ...]]
    jumps: Mapping[str, tuple[tuple[float, float], ...]]
    trained: Mapping[str, tuple[Mapping[str, float], ...]] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row for every activation and value, all with the same columns."""
        return [
            {"activation": name, self.parameter: value, **{column: cells[i] for column, cells in columns.items()}}
            for name, columns in self.activations.items()
            for i, value in enumerate(self.values)
        ]

    def to_pandas(self) -> Any:
        """A pandas DataFrame of the rows, indexed by activation and parameter."""
        pandas = _imported("pandas")
        return pandas.DataFrame(self.rows()).set_index(["activation", self.parameter])

    def to_xarray(self) -> Any:
        """An xarray Dataset over activation and parameter."""
        xarray = _imported("xarray")
        names = list(self.activations)
        columns = {
            c: (("activation", self.parameter), [list(self.activations[n][c]) for n in names]) for c in self._columns()
        }
        return xarray.Dataset(columns, coords={"activation": names, self.parameter: list(self.values)})

    def _columns(self) -> list[str]:
        return list(next(iter(self.activations.values())))

    def shown(self) -> dict[str, Any]:
        """What people read: where it was solved and what was written."""
        solved = {name: f"{len(nodes)} solves for {len(self.values)} values" for name, nodes in self.nodes.items()}
        return {
            "parameter": self.parameter,
            "activations": solved,
            **({"files": ", ".join(self.files)} if self.files else {}),
        }


def _imported(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ReplicodeError(f"{name} is not installed: pip install {name}; rows() needs nothing") from None


def curve(
    *acts: ActivationLike,
    task: str | Task = "spiked",
    tokens: Tokens,
    alpha: Any,
    nu: Any = None,
    noise: Any = 0.0,
    lambda_k: Any = 1.0,
    lambda_v: Any = 1.0,
    optimal: bool = False,
    trained: bool = False,
    bayes: bool = True,
    digits: int | None = None,
    output: str | Path | None = None,
    keep: bool = True,
    say: Say | None = None,
    on_node: OnNode | None = None,
    loss: str = LOSS,
    labels: str = LABELS,
    model: Model | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> Curve:
    """Solve along one parameter, given as a range `"LO:HI"` or `"LO:HI:N"` or a tuple of these numbers.

    `optimal` takes the lambdas of the least test risk at every node; `trained` trains attention at four values. With
    `output`, a picture's file, the figure is drawn there and the data left beside it as CSV and JSON. `on_node` is
    told every node once it is there: activation, value, and what was found.
    """
    if not acts:
        raise InputError("activation", "", "at least one activation")
    given = {
        "alpha": alpha,
        "nu": max(signal(act, nu) for act in acts) if nu is None else nu,
        "noise": noise,
        "lambda_k": lambda_k,
        "lambda_v": lambda_v,
    }
    (axis,), fixed = axes_of(1, given, parameters, more)
    if optimal and axis.name in OVER:
        raise InputError("optimal", axis.name, "a range of another parameter: the lambdas are searched over")
    tol = error_asked(digits)
    target = picture_asked_for(output)
    told = say or (lambda _: None)
    names = [act if isinstance(act, str) else activation_text(act) for act in acts]
    if len(set(names)) < len(names):
        raise InputError("activation", ", ".join(names), "each activation once")
    texts = ModelTexts(model, loss, labels, spectrum, teacher)
    posed = [problem(act, task, tokens, fixed, texts=texts) for act in acts]
    for each in posed:
        each.check_name("parameter", axis.name)
        each.with_values(**{axis.name: axis.high}).check()
    line = _bayes_line(posed[0], axis, tol, told) if bayes else None
    traced = {name: _traced(name, p, axis, tol, optimal, keep, told, on_node) for name, p in zip(names, posed)}
    marks = {n: _trained(p, axis, traced[n], optimal, told) for n, p in zip(names, posed)} if trained else {}
    values = tuple(axis.values())
    found = Curve(
        parameter=axis.name,
        values=values,
        activations={n: _columns(t, values, line) for n, t in traced.items()},
        nodes={n: tuple(axis.value(node.at) for node in t.nodes) for n, t in traced.items()},
        jumps={n: tuple((axis.value(a), axis.value(b)) for a, b in t.jumps) for n, t in traced.items()},
        trained=marks,
        warnings=tuple(w for n, t in traced.items() for w in _warnings(n, t, axis)),
        asked=posed[0].asked(
            activations=names, range=[axis.low, axis.high, axis.count], optimal=optimal, digits=digits
        ),
    )
    return found if target is None else saved("curve", found, target, lambda to: draw(found, to, axis.logarithmic))


def _traced(
    name: str, posed: Any, axis: Range, tol: float | None, optimal: bool, keep: bool, told: Say, on_node: OnNode | None
) -> Traced:
    count = [0]

    def tell(value: float, found: Mapping[str, Any]) -> None:
        count[0] += 1
        told(
            f"{name}: node {count[0]}, {axis.name} = {value:.6g}: test risk {found['values']['test_risk']:.8g} "
            f"+- {found['error']:.0e}"
        )
        if on_node is not None:
            on_node(name, value, found)

    return Tracer(posed, axis, tol, optimal, keep, tell).trace()


def _columns(traced: Traced, values: Sequence[float], line: BayesLine | None) -> dict[str, tuple[Any, ...]]:
    rows = [traced.row(v) for v in values]
    columns = {name: tuple(row[name] for row in rows) for name in rows[0]}
    reference = [(None, None) if line is None else line.at(v) for v in values]
    return columns | {"bayes_risk": tuple(r for r, _ in reference), "bayes_error": tuple(e for _, e in reference)}


def _warnings(name: str, traced: Traced, axis: Range) -> list[str]:
    told = []
    failed = [axis.value(n.at) for n in traced.nodes if not n.usable]
    if failed:
        told.append(f"{name}: no solution at {axis.name} = {', '.join(f'{v:.4g}' for v in failed)}")
    broken = [axis.value(n.at) for n in traced.nodes if n.usable and not n.found["rs_stable"]]
    if broken:
        told.append(f"{name}: replica symmetry is broken at nodes from {min(broken):.4g} to {max(broken):.4g}")
    for low, high in traced.jumps:
        told.append(f"{name}: the curve jumps between {axis.value(low):.6g} and {axis.value(high):.6g}")
    for begin, text in SAID:
        here = [n for n in traced.nodes if any(w.startswith(begin) for w in n.found["warnings"])]
        if here:
            low, high = axis.value(here[0].at), axis.value(here[-1].at)
            worst = max(n.found["error"] for n in here)
            told.append(f"{name}: {text.format(error=worst, at=f'at {axis.name} from {low:.4g} to {high:.4g}')}")
    lower = sorted({w for n in traced.nodes for w in n.found["warnings"] if w.startswith("another branch")})
    return told + [f"{name}: {w}" for w in lower[:2]]


def _bayes_line(posed: Any, axis: Range, tol: float | None, told: Say) -> BayesLine | None:
    """The Bayes-optimal risk along the range, or at one value where the parameter does not matter."""
    if slow_bayes(posed.module):
        return None

    def risk(value: float) -> tuple[float, float] | None:
        here = posed.with_values(**{axis.name: value}).values
        at = here["alpha"], here["nu"], here["noise"]
        return bayes_reference(posed.task, posed.law, *at, posed.learning)

    if axis.name in ("alpha", "nu", "noise"):
        return bayes_line(axis, risk, 0.1 * USUAL_ERROR if tol is None else tol, told)
    constant = risk(axis.low)
    return None if constant is None else BayesLine(axis, tuple(Solved(at, *constant) for at in axis.ends))


def _trained(posed: Any, axis: Range, traced: Traced, optimal: bool, told: Say) -> tuple[dict[str, float], ...]:
    """Trained attention at a few values, extrapolated in 1/D."""
    from replicode.verbs.validate import validate

    low, high = axis.ends
    marks = []
    for i in range(TRAINED_MARKS):
        value = axis.value(low + (high - low) * i / (TRAINED_MARKS - 1))
        here = posed.with_values(**{axis.name: value})
        if optimal:
            row = traced.row(value)
            here = here.with_values(**{n: row[n] for n in posed.strengths})
        report = validate(posed.act, **here.arguments(), dim=TRAINED_DIM, seeds=TRAINED_SEEDS)
        risk = report.trained.get("test_risk", {})
        mean, sem = risk.get("mean"), risk.get("sem")
        if mean is not None and sem is not None:
            marks.append({axis.name: value, "mean": mean, "sem": sem})
            told(f"trained at {axis.name} = {value:.4g}: {mean:.4f} +- {sem:.4f}")
    return tuple(marks)
