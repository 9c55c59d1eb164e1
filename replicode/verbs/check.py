"""The `check` command: the symbolic analysis of an activation, the Nishimori condition, and the property suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from replicode.asked import asked
from replicode.results import CheckResult
from replicode.theory.errors import InputError
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.limits import MAX_TOKENS, given_parameters

if TYPE_CHECKING:
    from replicode.theory.activation import ActivationLike
    from replicode.theory.task import Task

FACTS = (
    "equivariant",
    "normalised",
    "row_sum",
    "shift_invariant",
    "elementwise",
    "smooth",
    "kinks",
    "growth",
    "parity",
    "homogeneous",
    "parameters",
    "nishimori",
    "nishimori_condition",
)


def check(
    act: ActivationLike,
    task: str | Task = "spiked",
    tokens: Tokens | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> CheckResult:
    """Everything that `replicode check` reports, ready for JSON; what is undecided is None."""
    from replicode.theory.activation import activation
    from replicode.theory.analysis import analysis
    from replicode.theory.domain import check_domain
    from replicode.theory.language import unparse
    from replicode.theory.nishimori import nishimori
    from replicode.theory.task import task as setting_of
    from replicode.validation.properties import outcomes, subject

    law = None if tokens is None else lengths(tokens)
    if law is not None and law.fixed is None:
        raise InputError("tokens", str(law), f"a whole number from 1 to {MAX_TOKENS}")
    settled, setting = activation(act, given_parameters(parameters, more)), setting_of(task)
    check_domain(settled)
    fixed = settled.with_values()
    found = analysis(fixed)
    condition = nishimori(fixed, setting)
    suite = subject(fixed, setting, law.fixed if law else None, found)
    verdicts = outcomes(suite)
    claims = {
        "equivariant": found.equivariant,
        "normalised": found.normalised,
        "shift_invariant": found.shift_invariant,
    }
    facts = {
        "activation": settled.text,
        "task": setting.text,
        "tokens": law.fixed if law else None,
        **{name: claim.holds for name, claim in claims.items()},
        "elementwise": found.properties.elementwise,
        "smooth": found.smooth,
        "kinks": list(found.kinks),
        "growth": {"+inf": found.growth.up, "-inf": found.growth.down},
        "parity": found.parity,
        "parameters": list(settled.parameters),
        "nishimori": condition is not None,
        "nishimori_condition": None if condition is None else {"a": str(condition.a), "c": str(condition.c)},
        "row_sum": None if found.properties.row_sum is None else unparse(found.properties.row_sum),
        "homogeneous": None if found.homogeneous is None else str(found.homogeneous),
        "parameter_values": {**settled.values, **suite.parameters},
        "suite_tokens": suite.tokens,
        "properties": {name: verdict.outcome for name, verdict in verdicts.items()},
        "details": {name: verdict.detail for name, verdict in verdicts.items() if verdict.detail},
        "witnesses": {name: claim.witness for name, claim in claims.items() if claim.witness},
    }
    told = tuple(_warnings(found.growth.positive, claims, verdicts))
    return CheckResult(facts, warnings=told, asked=asked(act, task, law, settled.values))


def _warnings(free: tuple[str, ...], claims: Mapping[str, Any], verdicts: Mapping[str, Any]) -> list[str]:
    failed = [f"property {n} failed: {v.detail}" for n, v in verdicts.items() if v.outcome == "failed"]
    undecided = [f"{n} could be neither proved nor refuted" for n, c in claims.items() if c.holds is None]
    assumed = [f"growth is for positive {', '.join(free)}"] if free else []
    return failed + undecided + assumed


def failed(result: Mapping[str, Any]) -> bool:
    """Whether some property failed."""
    return "failed" in result["properties"].values()


def as_text(result: Mapping[str, Any]) -> str:
    """The report as a table."""
    lines = [f"{result['activation']}, task {result['task']}", ""]
    width = max(len(name) for name in (*FACTS, *result["properties"]))
    for name in FACTS:
        lines.append(f"{name:<{width}}  {_shown(result[name])}{_remark(result['witnesses'].get(name))}")
    lines += ["", f"property suite at {result['suite_tokens']} tokens"]
    for name, outcome in result["properties"].items():
        lines.append(f"{name:<{width}}  {outcome}{_remark(result['details'].get(name))}")
    return "\n".join(lines)


def _remark(text: str | None) -> str:
    return f"  ({text})" if text else ""


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_shown(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return (
        {True: "yes", False: "no", None: "-"}.get(value, str(value)) if isinstance(value, bool | None) else str(value)
    )
