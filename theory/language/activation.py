"""Activations sigma_l = f(x_l, S_1..S_r, L) with S_a = sum_l s_a(x_l), and their registry.

`Activation` is what every later stage receives: an expression with bound token sums, its parameters, and the
symbolic properties (`properties`) from which, never from a name, all reductions follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TypeAlias

import sympy as sp

from replicode.theory.errors import InputError
from replicode.theory.language import check_names, parse, unparse
from replicode.theory.language.nodes import L, TokenSum, X
from replicode.theory.language.vector import function_expression, sympy_expression
from replicode.theory.limits import given_parameters
from replicode.theory.registry import ACTIVATIONS, Registered


@dataclass(frozen=True)
class TokenForm:
    """f(x, S_1..S_r) with the bodies s_a(x, S_1..S_{a-1}) of its sums, inner sums first."""

    f: sp.Expr
    sums: tuple[tuple[sp.Symbol, sp.Expr], ...]

    def multiplied(self, radius: sp.Expr) -> TokenForm:
        """The same of scores that are `radius` times x."""
        scores = {X: radius * X}
        return TokenForm(self.f.xreplace(scores), tuple((s, b.xreplace(scores)) for s, b in self.sums))


@dataclass(frozen=True)
class Activation:
    """A permutation-equivariant map R^L -> R^L; parameters may have given values and registered defaults."""

    name: str
    expr: sp.Expr
    values: Mapping[str, float] = field(default_factory=dict)
    defaults: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError("name", self.name, "text")
        check_names(self.expr, "activation")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the free parameters, sorted."""
        return tuple(sorted(s.name for s in self.expr.free_symbols - {X, L}))

    @property
    def text(self) -> str:
        """The expression in the activation language."""
        return unparse(self.expr)

    def settled(self) -> dict[str, float]:
        """A value for every parameter; one with neither a value nor a registered default is an error."""
        known = {**self.defaults, **self.values}
        if missing := [p for p in self.parameters if p not in known]:
            raise InputError("param", None, f"a value for each of {missing} of {self.text}, as in {missing[0]}=0.5")
        return {p: known[p] for p in self.parameters}

    def with_values(self) -> Activation:
        """The activation with its given values written in, as typed; what is left is free."""
        given = {sp.Symbol(n, real=True): sp.Rational(repr(float(v))) for n, v in self.values.items()}
        return Activation(self.name, self.expr.xreplace(given), {}, self.defaults)

    def token_form(self) -> TokenForm:
        """Replace each TokenSum by a symbol, innermost first, in a canonical order."""
        expr = self.expr
        sums: list[tuple[sp.Symbol, sp.Expr]] = []
        while nodes := expr.atoms(TokenSum):
            innermost = sorted((n for n in nodes if not n.args[0].has(TokenSum)), key=sp.default_sort_key)
            for node in innermost:
                symbol = sp.Symbol(f"S_{len(sums) + 1}", real=True, positive=node.args[0].is_positive)
                sums.append((symbol, node.args[0]))
                expr = expr.xreplace({node: symbol})
        return TokenForm(expr, tuple(sums))


ActivationLike: TypeAlias = str | Activation | sp.Expr | Callable[..., object]

_REGISTRY: dict[str, Activation] = {}


def register(
    name: str,
    definition: str | sp.Expr | Callable[..., object],
    /,
    defaults: Mapping[str, float] | None = None,
    **more: float,
) -> Activation:
    """Register an activation under a name; `definition` is text of the language, SymPy, or a Python function.

    A function takes (x, sum, L), or one score, or the tuple of all scores and returns one expression per token.
    """
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or name in (X.name, L.name):
        raise InputError("name", name, f"an ASCII identifier other than {X} and {L}, which the language has")
    known = given_parameters(defaults, more)
    act = Activation(name, _defined(definition), {}, known)
    if unknown := set(known) - set(act.parameters):
        raise InputError("defaults", sorted(unknown), f"the parameters {list(act.parameters)} of {act.text}")
    content = definition if isinstance(definition, str) else sp.srepr(act.expr)
    ACTIVATIONS[name] = Registered(content, tuple(sorted(known.items())))
    _REGISTRY[name] = act
    return act


def registered() -> tuple[str, ...]:
    """The registered names, sorted."""
    return tuple(sorted(_REGISTRY))


def activation(spec: ActivationLike, /, parameters: Mapping[str, float] | None = None, **more: float) -> Activation:
    """A registered name, an expression (text or SymPy) or a Python function, with values over the defaults."""
    values = given_parameters(parameters, more)
    if isinstance(spec, Activation):
        act = spec
    elif isinstance(spec, str) and spec in _REGISTRY:
        act = _REGISTRY[spec]
    elif isinstance(spec, str):
        act = Activation("expression", _parsed_activation(spec))
    elif isinstance(spec, sp.Basic):
        act = Activation("expression", _defined(spec))
    elif callable(spec):
        act = Activation("function", _defined(spec))
    else:
        raise InputError("activation", spec, "a registered name, an expression as text or SymPy, or a function")
    if unknown := set(values) - set(act.parameters):
        own = f"the parameters {', '.join(act.parameters)} of" if act.parameters else "no parameter: there is none in"
        raise InputError("param", ", ".join(sorted(unknown)), f"{own} {act.text}")
    return replace(act, values={**act.values, **values})


def _parsed_activation(text: str) -> sp.Expr:
    """Parse text that is not a registered name; a lone unknown word is most likely a misspelt name."""
    if text.isidentifier() and text not in ("x", "L", "pi"):
        near = get_close_matches(text.lower(), registered(), 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        names = f"a registered name ({', '.join(registered())}) or an expression in x"
        raise InputError("activation", text, names + meant)
    return _defined(text)


def _defined(definition: str | sp.Expr | Callable[..., object]) -> sp.Expr:
    """The expression that a text, SymPy's own or a function defines, always one of the language."""
    if isinstance(definition, sp.Basic):
        expr = sympy_expression(definition)
    else:
        expr = parse(definition) if isinstance(definition, str) else function_expression(definition)
    if sp.Symbol("nu", nonnegative=True) in expr.free_symbols:
        raise InputError("activation", unparse(expr), "an expression without nu, which is the task's signal strength")
    if expr.is_zero:
        raise InputError("activation", "0", "an expression other than 0, whose output is 0 whatever is trained")
    return expr


for _name, _known in tuple(ACTIVATIONS.items()):
    register(_name, _known.content, dict(_known.defaults))
