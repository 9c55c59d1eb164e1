"""The functions: one record each of all that the rooms know of it, and the tables that follow from the records.

`RECORDS` holds the functions that users type, which have a `name`, and the nodes that derivatives and stable forms
lead to, which have none. Its derivatives are the node's own (`theory.nodes`, or SymPy); LaTeX is SymPy's.
To add a function is to add a record: tests/oracle/test_functions.py checks what it claims against mpmath.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import mpmath
import sympy as sp

from replicode.theory.language.nodes import (
    X,
    erfc,
    erfc_mantissa,
    erfcx,
    ierfcx,
    log_ndtr,
    relu,
    sigmoid,
    softplus,
    softplus_mantissa,
    step,
    tanh,
)

Number = Any
Rewriting = Callable[..., sp.Expr]
Pair = tuple[sp.Expr, sp.Expr]

POSITIVE, NOT_NEGATIVE = sp.Interval.open(0, sp.oo), sp.Interval(0, sp.oo)
OVERFLOW, SQUARED_OVERFLOW = 700, 340  # the largest exponents of which exp, and its square, are finite doubles
EXTRA_DIGITS = 40
FAR = 9.0  # from here on the recurrence of the integrals of erfc cancels, and SciPy's hyperu is accurate


@dataclass(frozen=True, kw_only=True)
class Function:
    """What is true of a function f(u), and how it is written in each target.

    `value`: a name in mpmath, or f(m, u) in the operations of m, which is mpmath or has its names for other numbers.
    `ends`: what f approaches towards -infinity and +infinity, in X; None where it oscillates or is not real.
    Where there are orders, at order 0.
    `bounds`: the least and the greatest value, approached or taken.
    `kink`: f as a function of u below and above zero, where it is not smooth; `degree` d: f(t u) = t^d f(u), t > 0.
    """

    name: str = ""
    node: type[sp.Function] | None
    value: str | Callable[..., Number]
    numpy: str | Callable[[str, int], str]
    c: str | None = None
    ends: tuple[sp.Expr | None, sp.Expr | None]
    bounds: tuple[sp.Expr, sp.Expr] = (-sp.oo, sp.oo)
    domain: sp.Set = sp.S.Reals
    degree: sp.Expr | None = None
    kink: tuple[Rewriting, Rewriting] | None = None
    # As parse builds it; by SymPy's own functions; by exponentials and moduli, for proofs.
    built: Rewriting | None = None
    builtin: Rewriting | None = None
    elementary: Rewriting | None = None
    # By functions that the rules of Gaussian averages know, for a linear argument; f(-u) by u and f(u).
    averaged: Rewriting | None = None
    reflected: Callable[[sp.Expr, sp.Expr], sp.Expr] | None = None
    # The node to compute with; pairs (p, q) with f(u) + p = q, where q does not cancel.
    stable: Rewriting | None = None
    complements: Callable[[sp.Expr], list[Pair]] | None = None
    # (e, r) with f = exp(e) r and r of moderate size; the largest exponent of an exp inside that makes a difference.
    log_scale: Callable[..., Pair] | None = None
    saturation: int | None = None

    def build(self, *arguments: sp.Expr) -> sp.Expr:
        """The function at its arguments, as the language builds it."""
        make = self.built or self.node
        assert make is not None
        return make(*arguments)

    def evaluator(self, m: Any = mpmath) -> Callable[..., Number]:
        """The function on the numbers of m."""
        return getattr(m, self.value) if isinstance(self.value, str) else partial(self.value, m)

    def numpy_text(self, *arguments: str) -> str:
        """NumPy source at arguments given as source, the second one an integer."""
        u, *order = arguments
        return self.numpy.format(u) if isinstance(self.numpy, str) else self.numpy(u, *map(int, order))

    @property
    def own(self) -> bool:
        """Whether the node is one of ours, which SymPy does not know."""
        return self.node is not None and self.node.__module__.startswith("replicode")

    @property
    def analytic(self) -> bool:
        """Whether it is analytic on all of R."""
        return self.kink is None and self.domain == sp.S.Reals

    @property
    def jumps(self) -> bool:
        """Whether the kink is a jump."""
        return self.kink is not None and self.kink[0](sp.S.Zero) != self.kink[1](sp.S.Zero)

    @property
    def bounded(self) -> bool:
        """Whether it is bounded."""
        return all(b.is_finite for b in self.bounds)

    @property
    def exponential(self) -> bool:
        """Whether it is made of exponentials."""
        return self.node is sp.exp or (self.elementary is not None and self.elementary(X).has(sp.exp))

    @cached_property
    def explosive(self) -> bool:
        """Whether it outgrows every power at one end."""
        far = [end.xreplace({X: sp.Integer(side)}) for side, end in zip((-1000, 1000), self.ends) if end is not None]
        return any(abs(value) > 10**100 for value in far)


def _ierfcx(m: Any, u: Number, order: int) -> Number:
    """exp(u^2) i^n erfc(u) by its recurrence, with digits to spare for the cancellation in it."""
    with m.workdps(mpmath.mp.dps + EXTRA_DIGITS):
        before, last = 2 / m.sqrt(m.mpf(m.pi)), m.exp(u * u) * m.erfc(u)
        for n in range(1, int(order) + 1):
            before, last = last, (before - 2 * u * last) / (2 * n)
    return +last


def _log_ndtr(m: Any, u: Number) -> Number:
    tail = m.erfc(abs(u) / m.sqrt(m.mpf(2))) / 2
    return m.log(tail) if u < 0 else m.log1p(-tail)


def _erfc_mantissa_numpy(u: str, order: int) -> str:
    last = f"special.erfcx(np.maximum({u}, 0.0))*special.erfc(np.minimum({u}, 0.0))"
    before = f"2.0*np.exp(-np.minimum({u}, 0.0)**2)/np.sqrt(np.pi)"
    for k in range(1, order + 1):
        near = f"({before} - 2.0*{u}*{last})/{2.0 * k}"
        far = f"special.hyperu({(k + 1) / 2}, 0.5, np.maximum({u}, {FAR})**2)/({2.0**k}*np.sqrt(np.pi))"
        before, last = last, f"np.where({u} > {FAR}, {far}, {near})"
    return f"({last})"


def _erfc(u: sp.Expr) -> sp.Expr:
    """erfc as typed: SymPy's 2 - erfc(x) for erfc(-x) would lose the tail to cancellation."""
    return sp.erfc(u, evaluate=not u.could_extract_minus_sign())


def _abs(u: sp.Expr) -> sp.Expr:
    """Abs, left alone where SymPy would expand the square of what it does not know to be real."""
    return sp.Abs(u, evaluate=bool(u.is_extended_real))


def _called(name: str) -> Function:
    """What is known of a function by its name alone, which mpmath, NumPy and C's library have for it."""
    return Function(name=name, node=None, value=name, numpy=f"np.{name}({{}})", c=f"{name}({{}})", ends=(None, None))


ZERO, ONE, ROOT_PI = sp.S.Zero, sp.S.One, sp.sqrt(sp.pi)

_ERFC = replace(
    _called("erfc"),
    name="",
    node=erfc,
    numpy="special.erfc({})",
    ends=(sp.Integer(2), sp.exp(-(X**2)) / (ROOT_PI * X)),
    bounds=(ZERO, sp.Integer(2)),
    reflected=lambda u, f: 2 - f,
)
_TANH = replace(
    _called("tanh"),
    name="",
    node=tanh,
    ends=(-ONE, ONE),
    bounds=(-ONE, ONE),
    reflected=lambda u, f: -f,
    saturation=OVERFLOW,
)

RECORDS: tuple[Function, ...] = (
    replace(
        _called("exp"),
        node=sp.exp,
        ends=(sp.exp(X), sp.exp(X)),
        bounds=(ZERO, sp.oo),
        saturation=OVERFLOW,
    ),
    replace(
        _called("log"),
        node=sp.log,
        ends=(None, sp.log(X)),
        domain=POSITIVE,
    ),
    replace(
        _called("sqrt"),
        built=sp.sqrt,
        ends=(None, sp.sqrt(X)),
        bounds=(ZERO, sp.oo),
        domain=NOT_NEGATIVE,
        degree=sp.S.Half,
    ),
    replace(
        _called("erf"),
        node=sp.erf,
        numpy="special.erf({})",
        ends=(-ONE, ONE),
        bounds=(-ONE, ONE),
        reflected=lambda u, f: -f,
        complements=lambda u: [(ONE, erfc(-u)), (-ONE, -erfc(u))],
        saturation=SQUARED_OVERFLOW,
    ),
    replace(_ERFC, name="erfc", node=sp.erfc, built=_erfc, stable=erfc, averaged=lambda u: 1 - sp.erf(u)),
    replace(
        _TANH,
        name="tanh",
        node=sp.tanh,
        elementary=lambda u: 1 - 2 / (1 + sp.exp(2 * u)),
        stable=lambda u: tanh(u) if u.has(sp.exp) else sp.tanh(u),
        complements=lambda u: [(ONE, 2 * sigmoid(2 * u)), (-ONE, -2 * sigmoid(-2 * u))],
    ),
    Function(
        name="sigmoid",
        node=sigmoid,
        value=lambda m, u: 1 / (1 + m.exp(-u)),
        numpy="special.expit({})",
        c="sigmoid({})",
        ends=(sp.exp(X), ONE),
        bounds=(ZERO, ONE),
        builtin=lambda u: 1 / (1 + sp.exp(-u)),
        elementary=lambda u: 1 / (1 + sp.exp(-u)),
        reflected=lambda u, f: 1 - f,
        complements=lambda u: [(-ONE, -sigmoid(-u)), (-sigmoid(-u), sp.tanh(u / 2))],
        log_scale=lambda u: (sp.Min(u, 0), sigmoid(sp.Abs(u))),
        saturation=OVERFLOW,
    ),
    Function(
        name="softplus",
        node=softplus,
        value=lambda m, u: m.log1p(m.exp(u)),
        numpy="np.logaddexp(0.0, {})",
        c="softplus({})",
        ends=(sp.exp(X), X),
        bounds=(ZERO, sp.oo),
        builtin=lambda u: sp.log(1 + sp.exp(u)),
        elementary=lambda u: sp.log(1 + sp.exp(u)),
        reflected=lambda u, f: f - u,
        complements=lambda u: [(-u, softplus(-u))],
        log_scale=lambda u: (sp.Min(u, 0), softplus_mantissa(u)),
    ),
    Function(
        name="relu",
        node=relu,
        value=lambda m, u: max(u, m.mpf(0)),
        numpy="np.maximum({}, 0.0)",
        c="greater({}, 0.0)",
        ends=(ZERO, X),
        bounds=(ZERO, sp.oo),
        degree=ONE,
        kink=(lambda u: ZERO, lambda u: u),
        builtin=lambda u: sp.Max(u, 0),
        elementary=lambda u: (u + sp.Abs(u)) / 2,
        averaged=lambda u: u * step(u),
        reflected=lambda u, f: f - u,
    ),
    Function(
        name="abs",
        node=sp.Abs,
        built=_abs,
        value=lambda _, u: abs(u),
        numpy="np.abs({})",
        c="fabs({})",
        ends=(-X, X),
        bounds=(ZERO, sp.oo),
        degree=ONE,
        kink=(lambda u: -u, lambda u: u),
        averaged=lambda u: u * sp.sign(u),
        reflected=lambda u, f: f,
    ),
    replace(
        _called("cos"),
        node=sp.cos,
        ends=(None, None),
        bounds=(-ONE, ONE),
        reflected=lambda u, f: f,
    ),
    replace(
        _called("sin"),
        node=sp.sin,
        ends=(None, None),
        bounds=(-ONE, ONE),
        reflected=lambda u, f: -f,
    ),
    replace(
        _called("sinh"),
        node=sp.sinh,
        ends=(-sp.exp(-X) / 2, sp.exp(X) / 2),
        elementary=lambda u: (sp.exp(u) - sp.exp(-u)) / 2,
        averaged=lambda u: (sp.exp(u) - sp.exp(-u)) / 2,
        reflected=lambda u, f: -f,
        log_scale=lambda u: (sp.Abs(u), sp.tanh(u) / (2 * sigmoid(2 * sp.Abs(u)))),
        saturation=OVERFLOW,
    ),
    replace(
        _called("cosh"),
        node=sp.cosh,
        ends=(sp.exp(-X) / 2, sp.exp(X) / 2),
        bounds=(ONE, sp.oo),
        elementary=lambda u: (sp.exp(u) + sp.exp(-u)) / 2,
        averaged=lambda u: (sp.exp(u) + sp.exp(-u)) / 2,
        reflected=lambda u, f: f,
        log_scale=lambda u: (sp.Abs(u), 1 / (2 * sigmoid(2 * sp.Abs(u)))),
        saturation=OVERFLOW,
    ),
    replace(
        _called("atan"),
        node=sp.atan,
        numpy="np.arctan({})",
        ends=(-sp.pi / 2, sp.pi / 2),
        bounds=(-sp.pi / 2, sp.pi / 2),
        reflected=lambda u, f: -f,
        saturation=SQUARED_OVERFLOW,
    ),
    Function(
        node=step,
        value=lambda m, u: m.mpf(u > 0),
        numpy="np.heaviside({}, 0.0)",
        c="step({})",
        ends=(ZERO, ONE),
        bounds=(ZERO, ONE),
        degree=ZERO,
        kink=(lambda u: ZERO, lambda u: ONE),
        builtin=lambda u: sp.Heaviside(u, 0),
        averaged=lambda u: (1 + sp.sign(u)) / 2,
    ),
    Function(
        node=sp.sign,
        value=lambda m, u: m.mpf(int(u > 0) - int(u < 0)),
        numpy="np.sign({})",
        c="sign({})",
        ends=(-ONE, ONE),
        bounds=(-ONE, ONE),
        degree=ZERO,
        kink=(lambda u: -ONE, lambda u: ONE),
        reflected=lambda u, f: -f,
    ),
    replace(_TANH, builtin=sp.tanh),
    replace(
        _ERFC,
        builtin=sp.erfc,
        complements=lambda u: [(sp.Integer(-2), -erfc(-u)), (-ONE, -sp.erf(u))],
        log_scale=lambda u: (-(sp.Max(u, 0) ** 2), erfc_mantissa(u, 0)),
        saturation=SQUARED_OVERFLOW,
    ),
    Function(
        node=erfcx,
        value=lambda m, u: _ierfcx(m, u, 0),
        numpy="special.erfcx({})",
        ends=(2 * sp.exp(X**2), 1 / (ROOT_PI * X)),
        bounds=(ZERO, sp.oo),
        builtin=lambda u: erfcx(u).rewrite(sp.erfc),
        log_scale=lambda u: (sp.Min(u, 0) ** 2, erfc_mantissa(u, 0)),
    ),
    Function(
        node=ierfcx,
        value=_ierfcx,
        numpy=lambda u, n: f"(np.exp(np.minimum({u}, 0.0)**2)*{_erfc_mantissa_numpy(u, n)})",
        ends=(2 * sp.exp(X**2), 1 / (ROOT_PI * X)),
        bounds=(ZERO, sp.oo),
        builtin=lambda u, n: ierfcx(u, n).rewrite(sp.erfc),
        log_scale=lambda u, n: (sp.Min(u, 0) ** 2, erfc_mantissa(u, n)),
    ),
    Function(
        node=log_ndtr,
        value=_log_ndtr,
        numpy="special.log_ndtr({})",
        ends=(-(X**2) / 2, -sp.exp(-(X**2) / 2) / (sp.sqrt(2) * ROOT_PI * X)),
        bounds=(-sp.oo, ZERO),
        builtin=lambda u: log_ndtr(u).rewrite(sp.erfc),
    ),
    Function(
        node=softplus_mantissa,
        value=lambda m, u: m.log1p(m.exp(u)) * m.exp(-min(u, m.mpf(0))),
        numpy=(
            "(np.maximum({0}, 0.0) + "
            "np.log1p(np.exp(-np.minimum(np.abs({0}), 690.0)))*np.exp(-np.clip({0}, -690.0, 0.0)))"
        ),
        c="softplus_mantissa({})",
        ends=(ONE, X),
        bounds=(sp.log(2), sp.oo),
    ),
    Function(
        node=erfc_mantissa,
        value=lambda m, u, n: _ierfcx(m, u, n) * m.exp(-(min(u, m.mpf(0)) ** 2)),
        numpy=_erfc_mantissa_numpy,
        ends=(sp.Integer(2), 1 / (ROOT_PI * X)),
        bounds=(ZERO, sp.oo),
        saturation=SQUARED_OVERFLOW,
    ),
)

BY_NAME: Mapping[str, Function] = MappingProxyType({f.name: f for f in RECORDS if f.name})
BY_NODE: Mapping[type, Function] = MappingProxyType({f.node: f for f in RECORDS if f.node is not None})


def own_values() -> dict[str, Callable[..., Number]]:
    """Our own nodes on mpmath's numbers, by the names that SymPy prints."""
    return {node.__name__: record.evaluator() for node, record in BY_NODE.items() if record.own}


def nodes_that(holds: Callable[[Function], bool]) -> tuple[type[Any], ...]:
    """The nodes of the functions of which something holds."""
    return tuple(node for node, function in BY_NODE.items() if holds(function))


def each(kind: str) -> Mapping[type, Any]:
    """What the records say of one kind, by node, where they say it."""
    return {node: said for node, function in BY_NODE.items() if (said := getattr(function, kind)) is not None}


def rewritten(expr: sp.Expr, kind: str) -> sp.Expr:
    """The expression with every function written as its record's `builtin` or `elementary` says."""
    for node, form in each(kind).items():
        if expr.has(node):
            expr = expr.replace(node, form)
    return expr


KINKED = nodes_that(lambda f: f.kink is not None)
JUMPING = nodes_that(lambda f: f.jumps)
FOLDED = nodes_that(lambda f: f.kink is not None and not f.jumps)


def branch(expr: sp.Expr, side: int) -> sp.Expr:
    """A kinked function where its argument has the sign of `side`."""
    kink = BY_NODE[type(expr)].kink
    assert kink is not None
    return kink[side > 0](*expr.args)
