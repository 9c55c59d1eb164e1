"""More digits than double precision has: the generated solver's saddle point, taken on by codegen/precise/saddle.py.

Numbers given are read as the decimals they are written as: 0.3 is 3/10, not the double next to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mpmath import floor, isfinite, log10, mpf, nint, nstr, workdps

from replicode.codegen.runtime.wording import told_apart
from replicode.inputs.arguments import DOUBLE_DIGITS, FLOAT_DIGITS
from replicode.theory.errors import Refusal

if TYPE_CHECKING:
    from replicode.inputs.problem import Problem

_ROUGH = 3


def precise_solution(posed: Problem, init: str, digits: int) -> dict[str, Any]:
    """The fields of a Solution, with numbers good to the digits asked for; floats as long as these hold them."""
    from replicode.codegen.precise.arb import best_numbers
    from replicode.codegen.precise.integral import Physics
    from replicode.codegen.precise.saddle import GUARD, check_dimension, noise_risk, precise_saddle
    from replicode.verbs.derive import derive

    module = posed.module
    dimension = check_dimension(module, posed.own)
    rough = posed.solve(10.0**-DOUBLE_DIGITS, init)
    if not rough.converged:
        raise Refusal(f"digits: no saddle point in double precision to start {digits} digits from: {rough.warnings[0]}")
    start = [rough.order_parameters[n] for n in module.ORDER_NAMES]
    with workdps(digits + GUARD):
        known, given = ({n: _decimal(x) for n, x in numbers.items()} for numbers in (posed.own, posed.physics))
        physics = Physics(**given, parameters=known)
        derived = derive(posed.act, posed.task, posed.law, posed.learning.model)
        found = precise_saddle(derived, start, physics, digits, best_numbers())
        numbers = {
            "test_risk": found.test_risk,
            "excess_risk": found.test_risk - noise_risk(derived.model, physics.noise),
            "train_loss": found.averages.train_loss,
            "energy": found.energy,
            "order_parameters": dict(zip(module.ORDER_NAMES, found.order, strict=True)),
            "conjugates": dict(zip(module.CONJUGATE_NAMES, found.conjugates, strict=True)),
            "residual": found.residual,
            "error": found.error,
            "folded_mass": found.folded_mass,
            "errors": {
                **rough.errors,
                **dict(zip(module.ORDER_NAMES, found.order_errors, strict=True)),
                **dict(zip(module.CONJUGATE_NAMES, found.conjugate_errors, strict=True)),
                "train_loss": found.train_error,
                "energy": found.energy_error,
            },
        }
    notes = [w for w in rough.warnings if not w.startswith("error:")]
    if not found.error <= mpf(10) ** -digits:
        bound, asked = told_apart(float(found.error), 10.0**-digits)
        notes.insert(0, f"error: the bound {bound} is above the {asked} asked for")
    changed = {
        **(numbers if digits > FLOAT_DIGITS else _floats(numbers)),
        "iterations": rough.iterations + found.evaluations,
        "method": f"prox-free, {digits + GUARD} digits, lattice of {found.nodes} nodes in {dimension} dimensions",
        "warnings": tuple(notes),
    }
    return {**rough._asdict(), **changed}


def _floats(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _floats(n) if isinstance(n, dict) else float(n) for name, n in numbers.items()}


def as_texts(fields: Mapping[str, Any], digits: int) -> dict[str, Any]:
    """The fields of a Solution with every real number as text, to the digits that its own error allows.

    What has no error of its own, the errors among it, is told to three digits; what is not finite is None.
    """
    errors = {**fields["errors"], "test_risk": fields["error"], "excess_risk": fields["error"]}
    errors["bayes_risk"] = fields["bayes_error"]

    def text(name: str, value: Any) -> Any:
        if not isinstance(value, float | mpf):
            return value
        return _known(value, errors.get(name), digits) if isfinite(value) else None

    texts: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "errors":
            texts[name] = {n: _known(e, None, digits) if isfinite(e) else None for n, e in value.items()}
        elif name in ("order_parameters", "conjugates"):
            texts[name] = {n: text(n, v) for n, v in value.items()}
        else:
            texts[name] = text(name, value)
    return texts


def _known(value: mpf | float, error: mpf | float | None, digits: int) -> str:
    """The value to as many places as are right to one unit in the last, at most those asked for."""
    if error is None:
        return str(nstr(mpf(value), _ROUGH))
    places = digits if error == 0 else min(digits, int(floor(-log10(2 * mpf(error))))) if isfinite(error) else 0
    return _rounded(value, places) if places > 0 else str(nstr(mpf(value), 1))


def _rounded(value: mpf | float, digits: int) -> str:
    """The value to so many places after the point."""
    with workdps(digits + 20):
        whole = int(nint(abs(mpf(value)) * mpf(10) ** digits))
    places = f"{whole:0{digits + 1}d}"
    return f"{'-' if value < 0 and whole else ''}{places[:-digits]}.{places[-digits:]}"


def _decimal(value: float) -> mpf:
    return mpf(repr(float(value)))
