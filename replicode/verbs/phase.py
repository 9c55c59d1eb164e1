"""`phase`: regions and lines over two parameters: which branch wins, where it changes, where replica symmetry holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicode.codegen.runtime.kernel import ORDER_NAMES
from replicode.figures.beside import saved
from replicode.figures.drawing import picture_asked_for
from replicode.figures.phase import draw
from replicode.inputs.arguments import PHYSICS, check_parameters, not_negative, one_of, positive
from replicode.inputs.asked import asked
from replicode.inputs.content import task_content
from replicode.inputs.learned import LABELS, LOSS, ModelTexts
from replicode.inputs.problem import problem
from replicode.inputs.ranges import ALLOWED, axes_of
from replicode.inputs.spectrum import SpectrumLike
from replicode.modules import bayes_module
from replicode.phases import bayes
from replicode.phases.lines import EDGE, Line, Lines
from replicode.phases.plane import INFORMED, NONE, Look, Plane, PlaneLevel
from replicode.phases.rs import ReplicaSymmetric
from replicode.phases.sampling import first_places, next_place, shares
from replicode.results import Result
from replicode.theory.errors import InputError, Refusal, ReplicodeError
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.limits import whole_number

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.language.task import Task
    from replicode.theory.model import Model

LEVELS = ("rs", "bayes")
USUAL_POINTS, LEAST_POINTS, MOST_POINTS = 120, 27, 10_000
NEAR = 6
FOLDED = 1e-3
UNRESOLVED = 1e-4
Say = Callable[[str], None]


@dataclass(frozen=True, repr=False)
class Phase(Result):
    """A phase diagram: points that were looked at, lines that were followed, and the regions between them.

    A point has the two `parameters`, `phase`, `rs_stable` or `hard_phase`, the winner's numbers and all `branches`.
    `phase` is one (one solution was found), informed or uninformed (several; the winner has the larger or the smaller
    overlap with the teacher), or none. A line has `kind`, `points`, `cusps`, and `complete` where it was followed to
    the border, to a cusp or round to its begin. `regions` have their `share` of the plane, by phase and stability.
    """

    headline = ("level", "parameters", "regions")

    level: str
    parameters: tuple[str, str]
    ranges: Mapping[str, tuple[float, float]]
    points: tuple[Mapping[str, Any], ...]
    lines: tuple[Mapping[str, Any], ...]
    regions: tuple[Mapping[str, Any], ...]
    tried: tuple[str, ...]
    files: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One row for every point, the winner's numbers in columns."""
        return [{n: v for n, v in point.items() if n != "branches"} for point in self.points]

    def shown(self) -> dict[str, Any]:
        """What people read: regions, and lines with their ends."""
        lines = {f"{i + 1}, {line['kind']}": _ends(line, self.parameters) for i, line in enumerate(self.lines)}
        parts = {f"{r['phase']}{'' if r['rs_stable'] else ', unstable'}": f"{r['share']:.1%}" for r in self.regions}
        return {
            "level": self.level,
            "points": len(self.points),
            "regions": parts,
            "lines": lines or "none",
            **({"files": ", ".join(self.files)} if self.files else {}),
        }


def _ends(line: Mapping[str, Any], names: Sequence[str]) -> str:
    first, last = line["points"][0], line["points"][-1]
    said = f"{len(line['points'])} points from ({first[0]:.5g}, {first[1]:.5g}) to ({last[0]:.5g}, {last[1]:.5g})"
    cusps = "".join(f"; cusp at ({c[0]:.5g}, {c[1]:.5g})" for c in line["cusps"])
    return f"{said} in ({', '.join(names)}){cusps}" + ("" if line["complete"] else "; ends inside")


def phase(
    act: ActivationLike | None = None,
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    alpha: Any,
    nu: Any = None,
    noise: Any = 0.0,
    lambda_k: Any = 1.0,
    lambda_v: Any = 1.0,
    level: str | None = None,
    points: int = USUAL_POINTS,
    output: str | Path | None = None,
    keep: bool = True,
    say: Say | None = None,
    loss: str = LOSS,
    labels: str = LABELS,
    model: Model | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> Phase:
    """The phase diagram over the two parameters that are given as ranges, `"LO:HI"`.

    Without an activation, or at level bayes, that of the Bayes-optimal theory, hard phase included. `points` are
    looked at, more of them where something changes. With `output`, a picture's file, the figure is drawn there and the
    data left beside it as CSV and JSON. What is done is kept: an interrupted diagram goes on where it was.
    """
    chosen = level or ("bayes" if act is None else "rs")
    one_of("level", chosen, LEVELS)
    if chosen == "rs" and act is None:
        raise InputError("activation", "", "an activation at level rs; at level bayes there is none")
    count = whole_number("points", points, LEAST_POINTS, MOST_POINTS)
    if nu is None:
        raise InputError("nu", nu, f"{ALLOWED}: without scores there is one solution everywhere")
    given = {"alpha": alpha, "nu": nu, "noise": noise, "lambda_k": lambda_k, "lambda_v": lambda_v}
    ranges, fixed = axes_of(2, given, parameters, more)
    plane, target, told = Plane(*ranges), picture_asked_for(output), say or (lambda _: None)
    texts = ModelTexts(model, loss, labels, spectrum, teacher)
    theory, question = _level(chosen, (act, task, tokens), texts, fixed, plane, keep)
    looks = _looked(theory, count, told)
    lines, warnings = _followed(theory, looks, chosen, told)
    found = Phase(
        level=chosen,
        parameters=plane.names,
        ranges={axis.name: (axis.low, axis.high) for axis in (plane.x, plane.y)},
        points=tuple(_point(look, plane, chosen) for look in looks),
        lines=tuple(_line(line, plane) for line in lines),
        regions=tuple(_regions(looks)),
        tried=_tried(chosen, looks),
        warnings=tuple(warnings),
        asked=question | {"level": chosen, "points": count, "ranges": {r.name: [r.low, r.high] for r in ranges}},
    )
    return found if target is None else saved("phase", found, target, lambda to: draw(found, plane, looks, lines, to))


def _level(
    level: str, who: tuple[Any, ...], texts: ModelTexts, fixed: Mapping[str, float], plane: Plane, keep: bool
) -> tuple[PlaneLevel, dict[str, Any]]:
    """The theory over the plane, its arguments checked at both ends, and what was asked for."""
    act, task, tokens = who
    corner = {axis.name: axis.high for axis in (plane.x, plane.y)}
    if level == "bayes":
        check_parameters((), {n: v for n, v in fixed.items() if n not in PHYSICS})
        for penalty in ("lambda_k", "lambda_v"):
            if penalty not in plane.names and fixed[penalty] != 1.0:
                raise InputError(penalty, fixed[penalty], "nothing at level bayes: no penalty is part of it")
        if unknown := [n for n in plane.names if n not in bayes.PHYSICS]:
            raise InputError("range", unknown[0], f"two of {', '.join(bayes.PHYSICS)} at level bayes")
        physics = {n: fixed[n] for n in bayes.PHYSICS}
        for at in (physics, {**physics, **corner}):
            positive("alpha", at["alpha"]), not_negative("nu", at["nu"], True), not_negative("noise", at["noise"])
        if texts.spectrum is not None:
            raise Refusal("phase: the Bayes-optimal branches with a spectrum; those of isotropic tokens are followed")
        law, learning = lengths(tokens), texts.read()
        module = bayes_module(task, law, learning.model)
        question = asked(None, task, law, None, learning.model, **physics)
        return bayes.BayesOptimal(
            module, (task_content(task), repr(law), *learning.content), physics, plane, keep
        ), question
    posed = problem(act, task, tokens, fixed, texts=texts)
    for name in plane.names:
        posed.check_name("range", name)
    posed.with_values(**corner).check()
    if tuple(posed.module.ORDER_NAMES) != ORDER_NAMES:
        raise Refusal("phase: an activation that is constant has no scores, and one solution everywhere")
    return ReplicaSymmetric(posed, plane, keep), posed.asked()


def _looked(theory: PlaneLevel, count: int, told: Say) -> list[Look]:
    """The first grid, then wherever most is open."""
    looks: list[Look] = []

    def look(place: tuple[float, float]) -> None:
        near = sorted(looks, key=lambda known: float(np.hypot(*np.subtract(known.place, place))))[:NEAR]
        looks.append(theory.look(place, near))
        told(f"{len(looks)} of {count} points: {looks[-1].phase}, test risk {looks[-1].risk:.6g}")

    for place in first_places():
        look(place)
    while len(looks) < count and (further := next_place(looks)) is not None:
        look(further)
    return looks


def _followed(theory: PlaneLevel, looks: Sequence[Look], level: str, told: Say) -> tuple[list[Line], list[str]]:
    """The lines, and what is not to be trusted."""
    warnings = []
    failed = sum(look.phase == NONE for look in looks)
    if failed:
        warnings.append(f"no solution at {failed} of {len(looks)} points")
    search = Lines(theory, looks, told)
    if isinstance(theory, ReplicaSymmetric) and len(search.looks) > 3:
        try:
            missed = theory.resolve(search.looks[len(search.looks) // 2])
            if missed > UNRESOLVED:
                warnings.append(
                    f"lines of branches are those of coarse nodes, on which a solution is off by {missed:.1g}"
                )
        except ReplicodeError as problem:
            warnings.append(f"lines of branches are not followed: {problem}")
            search.edges, kept = [], search.edges
            return _stability_alone(search, kept), warnings
    lines = search.all(stability=level == "rs")
    if isinstance(theory, ReplicaSymmetric) and theory.folded > FOLDED:
        warnings.append(f"folds of the prox weigh up to {theory.folded:.2g}: lines of branches are those without them")
    inner = [line.kind for line in lines if not line.complete]
    warnings += search.missed + [f"a line ends inside: {kind}" for kind in sorted(set(inner)) if kind != EDGE]
    return lines, warnings


def _stability_alone(search: Lines, edges: list[tuple[int, int]]) -> list[Line]:
    """The edge of stability needs no slopes."""
    search.edges = edges
    search._stability()
    return search.found


def _point(look: Look, plane: Plane, level: str) -> dict[str, Any]:
    own: dict[str, Any] = {"rs_stable": look.stable, "margin": look.margin}
    potential, sign = "energy", 1.0
    if level == "bayes":
        own, potential, sign = {"hard_phase": look.phase == INFORMED}, "free_entropy", -1.0

    def numbers(row: Mapping[str, Any]) -> dict[str, Any]:
        told = {"test_risk": row["test_risk"], "error": row["error"], potential: sign * row["potential"]}
        return {**told, **row["order"]}

    head = numbers(look.solutions[0]) if look.solutions else dict.fromkeys(("test_risk", "error", potential))
    branches = [{**numbers(row), "found_by": row["how"]} for row in look.solutions]
    found = {"phase": look.phase, **own, **head, "solutions": len(branches), "branches": branches}
    return {**plane.values(look.place), **found}


def _line(line: Line, plane: Plane) -> dict[str, Any]:
    def there(places: Sequence[tuple[float, float]]) -> list[list[float]]:
        return [[plane.values(p)[n] for n in plane.names] for p in places]

    return {"kind": line.kind, "points": there(line.places), "cusps": there(line.cusps), "complete": line.complete}


def _regions(looks: Sequence[Look]) -> list[dict[str, Any]]:
    """Phases with and without stability, the largest first."""
    part = shares(looks)
    kinds = dict.fromkeys((look.phase, look.stable) for look in looks)
    rows = []
    for phase_name, stable in kinds:
        chosen = [i for i, look in enumerate(looks) if (look.phase, look.stable) == (phase_name, stable)]
        risks = [looks[i].risk for i in chosen if np.isfinite(looks[i].risk)]
        spread = [min(risks), max(risks)] if risks else None
        row = {"share": float(part[chosen].sum()), "points": len(chosen), "test_risk": spread}
        rows.append({"phase": phase_name, "rs_stable": stable, **row})
    return sorted(rows, key=lambda r: -r["share"])


def _tried(level: str, looks: Sequence[Look]) -> tuple[str, ...]:
    starts = (
        "informed and uninformed starts"
        if level == "bayes"
        else "informed and random starts, and solutions of points nearby"
    )
    found = sorted({s["how"].split(" ")[0] for look in looks for s in look.solutions})
    return (
        f"at every point: {starts}",
        f"solutions were found by: {', '.join(found)}",
        "between points: continuation of every branch, folds followed as lines",
    )
