"""The `check` command: the symbolic analysis of an activation, the Nishimori condition, and the property suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from replicode.inputs.asked import asked
from replicode.inputs.learned import LABELS, LOSS, learned, named
from replicode.inputs.spectrum import SpectrumLike, TokenSpectrum, structured, token_spectrum
from replicode.kinds import ActivationLike, Model, Task
from replicode.results import CheckResult
from replicode.theory.budget import budget
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.theory.limits import given_parameters

if TYPE_CHECKING:
    from replicode.validation.properties import Outcome, Subject, Verdict

FACTS = (
    *("equivariant", "normalised", "row_sum", "shift_invariant", "elementwise", "smooth", "kinks", "growth", "parity"),
    *("homogeneous", "parameters", "nishimori", "nishimori_condition"),
)


def check(
    act: ActivationLike,
    task: str | Task = "spiked",
    tokens: Tokens | None = None,
    parameters: Mapping[str, float] | None = None,
    *,
    loss: str = LOSS,
    labels: str = LABELS,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
    **more: float,
) -> CheckResult:
    """Everything that `replicode check` reports, ready for JSON; what is undecided is None.

    The suite is that of the square loss on Gaussian labels. With others, or with a spectrum, the properties of these
    are looked at too. Where the number of tokens varies the suite is run at
    each length, and on their mixture.
    """
    from replicode.validation.properties import subject, suited

    law, data = None if tokens is None else lengths(tokens), token_spectrum(spectrum, teacher)
    model = learned(None, loss, labels)
    with budget("checking the activation"):
        read = _read(act, task, law, given_parameters(parameters, more))
        tried = suited(law)
        suites = [subject(read.fixed, read.setting, n, read.found) for n in tried.tokens]
    verdicts = _verdicts(suites, tried) | _of_spectrum(read.fixed, read.setting, tried, data)
    verdicts |= _of_model(read.fixed, read.setting, tried, model, suites[0].parameters)
    facts = {
        **read.facts,
        "parameter_values": {**read.settled.values, **suites[0].parameters},
        "suite_tokens": tried.fixed or list(tried.tokens),
        "properties": {name: verdict.outcome for name, verdict in verdicts.items()},
        "details": {name: verdict.detail for name, verdict in verdicts.items() if verdict.detail},
        "witnesses": {name: claim.witness for name, claim in read.claims.items() if claim.witness},
    }
    told = tuple(_warnings(read.found.growth.positive, read.claims, verdicts))
    question = named(loss, labels) | ({} if data is None else data.question())
    return CheckResult(facts, warnings=told, asked=asked(act, task, law, read.settled.values, **question))


def facts(act: ActivationLike, task: str | Task = "spiked", tokens: Tokens | None = None) -> dict[str, Any]:
    """What the symbolic analysis says of an activation, without the property suite: a second or so."""
    with budget("reading the activation"):
        law = None if tokens is None else lengths(tokens)
        return _read(act, task, law, {}).facts


@dataclass(frozen=True)
class _Read:
    """An activation with its values, the same without them, its task, what was found, and that as plain facts."""

    settled: Any
    fixed: Any
    setting: Any
    found: Any
    claims: Mapping[str, Any]
    facts: dict[str, Any]


def _read(act: ActivationLike, task: str | Task, law: Lengths | None, given: Mapping[str, float]) -> _Read:
    """The symbolic analysis and the Nishimori condition."""
    from replicode.theory.derive.nishimori import nishimori
    from replicode.theory.language import unparse
    from replicode.theory.language.activation import activation
    from replicode.theory.language.nodes import L
    from replicode.theory.language.task import task as setting_of
    from replicode.theory.properties.analysis import analysis
    from replicode.theory.properties.domain import check_domain

    varies = law is not None and law.fixed is None
    settled = activation(act, given)
    setting = setting_of(task).at(law) if varies else setting_of(task)
    for length in law.tokens if law else (None,):
        check_domain(settled, length)
    fixed = settled.with_values()
    found = analysis(fixed)
    condition = nishimori(fixed, setting)
    if condition is not None and varies and L in condition.a.free_symbols:
        condition = None
    claims = {name: getattr(found, name) for name in ("equivariant", "normalised", "shift_invariant")}
    told = {
        "activation": settled.text,
        "task": setting.text,
        "tokens": law and (law.fixed or str(law)),
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
    }
    return _Read(settled, fixed, setting, found, claims, told)


def _of_spectrum(act: Any, setting: Any, tried: Lengths, data: TokenSpectrum | None) -> dict[str, Verdict]:
    """The properties of the prior at this spectrum."""
    if data is None:
        return {}
    from replicode.modules import module_for
    from replicode.validation.properties.structured import spectrum_properties

    module, _ = module_for(act, setting, tried, model=structured(None, data))
    return spectrum_properties(module, data.argument)


def _of_model(
    act: Any, setting: Any, tried: Lengths, model: Model | None, parameters: Mapping[str, float]
) -> dict[str, Verdict]:
    """The properties of another loss or label."""
    if model is None:
        return {}
    from replicode.modules import module_for
    from replicode.validation.properties.learned import learned_properties

    module, values = module_for(act, setting, tried, model=model)
    with budget("the properties of loss and labels"):
        return learned_properties(module, model, {**values, **parameters})


def _verdicts(suites: Sequence[Subject], tried: Lengths) -> dict[str, Verdict]:
    """The suite at every length; over several a property fails where it fails at one of them."""
    from replicode.validation.properties import outcomes

    found = []
    for suite in suites:
        with budget(f"the property suite at {suite.tokens} tokens"):
            found.append(outcomes(suite))
    if len(suites) == 1:
        return found[0]
    names = {name: [verdicts[name] for verdicts in found] for name in found[0]}
    merged = {name: _merged(tried.tokens, verdicts) for name, verdicts in names.items()}
    with budget(f"the property suite at {tried} tokens"):
        return merged | outcomes(replace(suites[-1], mixture=str(tried)), ("lengths mix",))


def _merged(tokens: Sequence[int], verdicts: Sequence[Verdict]) -> Verdict:
    """The worst of the verdicts, with the lengths it was given at where they differ."""
    from replicode.validation.properties import Verdict

    outcomes: tuple[Outcome, ...] = ("failed", "passed", "not applicable")
    outcome = next(o for o in outcomes if any(v.outcome == o for v in verdicts))
    told = {n: v.detail for n, v in zip(tokens, verdicts, strict=True) if v.outcome == outcome and v.detail}
    if len(set(told.values())) == 1 and len(told) == len(tokens):
        return Verdict(outcome, told[tokens[0]])
    return Verdict(outcome, "; ".join(f"{n} tokens: {detail}" for n, detail in told.items()))


def _warnings(free: tuple[str, ...], claims: Mapping[str, Any], verdicts: Mapping[str, Any]) -> list[str]:
    failed = [f"property {n} failed: {v.detail}" for n, v in verdicts.items() if v.outcome == "failed"]
    undecided = [f"{n} could be neither proved nor refuted" for n, c in claims.items() if c.holds is None]
    assumed = [f"growth is for positive {', '.join(free)}"] if free else []
    return failed + undecided + assumed


def as_text(result: Mapping[str, Any]) -> str:
    """The report as a table."""
    lines = [f"{result['activation']}, task {result['task']}", ""]
    width = max(len(name) for name in (*FACTS, *result["properties"]))
    for name in FACTS:
        lines.append(f"{name:<{width}}  {shown(result[name])}{_remark(result['witnesses'].get(name))}")
    lines += ["", f"property suite at {shown(result['suite_tokens'])} tokens"]
    for name, outcome in result["properties"].items():
        lines.append(f"{name:<{width}}  {outcome}{_remark(result['details'].get(name))}")
    return "\n".join(lines)


def _remark(text: str | None) -> str:
    return f"  ({text})" if text else ""


def shown(value: Any) -> str:
    """A fact in words."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {shown(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return {True: "yes", False: "no", None: "-"}[value] if isinstance(value, bool | None) else str(value)
