"""What a report says: everything is computed here, and handed on as a frozen `Contents` that `page` writes down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from replicode.inputs.ranges import Range, read_range
from replicode.modules import module_for, module_source
from replicode.reports.kept import kept_check, kept_equations, kept_population
from replicode.reports.mathematics import Equation
from replicode.reports.settled import Settled, middle, settled
from replicode.theory.errors import Refusal

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.verbs.curve import Curve

NU_POINTS = 13
NU_SPAN = 0.125, 2.5
Say = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """What is said of one activation."""

    name: str
    expression: str
    values: Mapping[str, float]
    chosen: Mapping[str, float]
    check: Mapping[str, Any]
    best: Mapping[str, Any] | None
    equations: tuple[Equation, ...]
    source: str
    signature: str


@dataclass(frozen=True)
class Contents:
    """All that is on the page; `shared` are the equations that are the same for every activation, by title."""

    parts: tuple[Part, ...]
    curve: Curve
    infinite: tuple[Mapping[str, Any], ...]
    shared: Mapping[str, tuple[Equation, ...]]
    options: Mapping[str, Any]
    warnings: tuple[str, ...]


def contents(acts: Sequence[ActivationLike], say: Say, arguments: Mapping[str, Any]) -> Contents:
    """Compute everything; the arguments are those of `curve`."""
    from replicode.verbs.curve import curve

    task, tokens, nu = arguments["task"], arguments["tokens"], arguments["nu"]
    parameters = dict(arguments.get("parameters") or {})
    made = settled(acts, task, tokens, nu, parameters)
    ranges = {p: v for p, v in parameters.items() if isinstance(read_range(p, v), Range)}
    rest = {n: v for n, v in arguments.items() if n != "parameters"} | {"parameters": ranges}
    found = curve(*(m.as_argument for m in made), say=say, **rest)
    found = renamed(found, [m.name for m in made])
    rows = infinite_rows(made, task, tokens, nu, _number(arguments["noise"]), say)
    shared, own = equations_by_title(made, task, tokens, bool(arguments.get("bayes", True)))
    parts = []
    for each in made:
        say(f"{each.name}: properties and equations")
        solved = [r for r in rows if r["activation"] == each.name and "refused" not in r]
        parts.append(_part(each, task, tokens, solved, middle(nu), own[each.name]))
    told = tuple(w for p in parts for w in _warnings(p))
    return Contents(tuple(parts), found, tuple(rows), shared, dict(arguments), (*found.warnings, *told))


def renamed(found: Curve, names: Sequence[str]) -> Curve:
    """The curve under the names that were given: an activation with values is known by its expression to `curve`."""
    known = dict(zip(found.activations, names, strict=True))
    moved: dict[str, Any] = {
        field: {known[n]: v for n, v in getattr(found, field).items()}
        for field in ("activations", "nodes", "jumps", "trained")
    }
    warnings = tuple(_replaced(w, known) for w in found.warnings)
    return replace(found, **moved, warnings=warnings)


def _replaced(warning: str, known: Mapping[str, str]) -> str:
    for old, new in known.items():
        if warning.startswith(f"{old}: "):
            return new + warning[len(old) :]
    return warning


def _number(value: Any) -> float:
    found = read_range("noise", value)
    return found.low if isinstance(found, Range) else found


def signals(nu: Any) -> list[float]:
    """The values of nu at which infinite data are looked at: the range that was asked for, or one around the value."""
    found = read_range("nu", nu)
    if isinstance(found, Range):
        return Range("nu", found.low, found.high, NU_POINTS).values()
    if not 0.0 < found < float("inf"):
        return [found]
    low, high = (share * found for share in NU_SPAN)
    return sorted({found, *(low + (high - low) * i / (NU_POINTS - 1) for i in range(NU_POINTS))})


def infinite_rows(
    made: Sequence[Settled], task: Any, tokens: Any, nu: Any, noise: float, say: Say
) -> list[dict[str, Any]]:
    """The best test risk with infinite data over nu, for every activation; parameters that were chosen stay free."""
    rows = []
    for each in made:
        for value in signals(nu):
            say(f"{each.name}: infinite data at nu = {value:.4g}")
            try:
                found = kept_population(each.open, task, tokens, value, noise)
            except Refusal as refusal:
                rows.append({"activation": each.name, "nu": value, "refused": str(refusal)})
                break
            rows.append({"activation": each.name, "nu": value, **found})
    return rows


def _part(
    each: Settled, task: Any, tokens: Any, solved: Sequence[Mapping[str, Any]], nu: float, own: Sequence[Equation]
) -> Part:
    act = each.as_argument
    module, values = module_for(act, task, tokens)
    return Part(
        name=each.name,
        expression=each.activation.text,
        values=values,
        chosen=each.chosen,
        check=kept_check(act, task, tokens),
        best=min(solved, key=lambda r: abs(r["nu"] - nu) if r["nu"] != nu else 0.0) if solved else None,
        equations=tuple(own),
        source=module_source(act, task, tokens),
        signature=module.METADATA["signature"],
    )


TITLES = {
    "saddle": "Saddle point",
    "stability": "Stability of replica symmetry",
    "infinite": "Infinite data",
    "bayes": "Bayes-optimal",
}


def equations_by_title(
    made: Sequence[Settled], task: Any, tokens: Any, with_bayes: bool
) -> tuple[dict[str, tuple[Equation, ...]], dict[str, list[Equation]]]:
    """Equations that all activations share, by title, and for every activation those that are its own."""
    found = {each.name: kept_equations(each.as_argument, task, tokens) for each in made}
    own = {name: list(equations["own"]) for name, equations in found.items()}
    shared: dict[str, tuple[Equation, ...]] = {}
    for kind in ("saddle", "stability", "infinite"):
        first = found[made[0].name][kind]
        common = [e for e in first if all(e in others[kind] for others in found.values())]
        shared[TITLES[kind]] = tuple(common)
        for name, equations in found.items():
            own[name] += [e for e in equations[kind] if e not in common]
    if with_bayes:
        shared[TITLES["bayes"]] = tuple(kept_equations(None, task, tokens)["bayes"])
    return shared, own


def _warnings(part: Part) -> list[str]:
    told = [f"{part.name}: {w}" for w in part.check.get("warnings", ())]
    return told + [f"{part.name}, infinite data: {w}" for w in (part.best or {}).get("warnings", ())]
