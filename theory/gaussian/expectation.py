"""Gaussian averages of symbolic integrands: closed forms where a rule applies, quadrature nodes for the rest.

`expectation(integrand, law)` hands on a sum of closed parts and `GaussianIntegral` nodes; `closed_form` is None as soon
as a node is left. A law lists (symbol, mean, variance) of independent Gaussian variables. Closed forms hold where the
average exists; where that depends on a parameter, as for exp(a x^2), it is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product
from typing import Any

import mpmath
import sympy as sp
from mpmath import mpf

from replicode.theory.errors import InputError, Refusal
from replicode.theory.gaussian.rules import Divergent, gaussian_mean
from replicode.theory.gaussian.special import bivariate_normal_cdf_value, normal_density, owens_t_value
from replicode.theory.gaussian.terms import READINGS, Open, Reader, addends
from replicode.theory.language.functions import JUMPING, KINKED, branch, nodes_that, own_values

Law = tuple[tuple[sp.Symbol, sp.Expr, sp.Expr], ...]

GUARD_BITS = 30
PANELS = 16
MAX_POINTS = 60_000
MAX_PARTS = 60


def expectation(integrand: sp.Expr, law: Iterable[Sequence[Any]]) -> sp.Expr:
    """E[integrand] under independent Gaussians, closed as far as the rules go; Refusal where it provably diverges."""
    integrand = sp.sympify(integrand)
    entries: Law = tuple((x, sp.sympify(mean), sp.sympify(variance)) for x, mean, variance in law)
    variables = {x for x, _, _ in entries}
    for x, mean, variance in entries:
        if (mean.free_symbols | variance.free_symbols) & (variables - {x}):
            raise InputError("law", (x, mean, variance), "moments without the other variables of the law")
    try:
        return _mean(integrand, entries)
    except Divergent as fault:
        named = ", ".join(f"{x} ~ N({mean}, {variance})" for x, mean, variance in entries)
        raise Refusal(
            f"the average of {integrand} over {named} diverges: it grows faster than the law decays"
        ) from fault


def closed_form(integrand: sp.Expr, law: Iterable[Sequence[Any]]) -> sp.Expr | None:
    """E[integrand] in closed form, or None."""
    found = expectation(integrand, law)
    return None if found.has(GaussianIntegral) else found


def _mean(f: sp.Expr, law: Law) -> sp.Expr:
    """One variable after another by the rules, then addend by addend, then a node."""
    law = tuple(entry for entry in law if entry[0] in f.free_symbols)
    if not law:
        return f
    reduced = _one_less(f, law)
    if reduced is not None:
        return _mean(*reduced)
    factors = _independent_factors(f, law)
    if len(factors) > 1:
        return sp.Mul(*[_mean(factor, law) for factor in factors])
    try:
        parts = addends(f, [x for x, _, _ in law])
    except Open:
        parts = []
    return _by_addends(f, parts, law) if 1 < len(parts) <= MAX_PARTS else gaussian_node(f, law)


def _one_less(f: sp.Expr, law: Law) -> tuple[sp.Expr, Law] | None:
    """The average over the first variable that the rules integrate, and the law that is left."""
    for entry in law:
        rest = tuple(e for e in law if e != entry)
        try:
            return gaussian_mean(f, *entry, random=frozenset(x for x, _, _ in rest)), rest
        except Open:
            continue
    return None


def _independent_factors(f: sp.Expr, law: Law) -> list[sp.Expr]:
    """The factors of a product, joined where they share a variable."""
    variables = {x for x, _, _ in law}
    groups: list[sp.Expr] = []
    for factor in sp.Mul.make_args(f):
        touched = [g for g in groups if g.free_symbols & factor.free_symbols & variables]
        groups = [g for g in groups if g not in touched] + [sp.Mul(factor, *touched)]
    return groups


def _by_addends(f: sp.Expr, parts: list[sp.Expr], law: Law) -> sp.Expr:
    """The closed addends, and one node for all the others; the integrand as it stood if none is closed."""
    closed: list[sp.Expr] = []
    left: list[sp.Expr] = []
    for part in parts:
        try:
            reduced = _one_less(part, law)
        except Divergent:
            reduced = None
        if reduced is None:
            left.append(part)
        else:
            closed.append(_mean(*reduced))
    if not closed:
        return gaussian_node(f, law)
    return sp.Add(*closed, gaussian_node(sp.Add(*left), law) if left else sp.S.Zero)


def gaussian_node(f: sp.Expr, law: Law) -> sp.Expr:
    """The node, constant factors in front of it."""
    outside, inside = f.as_independent(*[x for x, _, _ in law], as_Add=False)
    return outside * GaussianIntegral(inside, *law)


class GaussianIntegral(sp.Expr):
    """E[integrand] over independent Gaussians (symbol, mean, variance), for quadrature; the symbols are bound."""

    is_commutative = True

    def __new__(cls, integrand: sp.Expr, *law: Any) -> sp.Expr:
        """Variables that do not occur or do not vary are integrated at once."""
        integrand = sp.sympify(integrand)
        kept = []
        for x, mean, variance in law:
            if sp.sympify(variance).is_zero:
                integrand = integrand.xreplace({x: sp.sympify(mean)})
            elif x in integrand.free_symbols:
                kept.append(sp.Tuple(x, mean, variance))
        return super().__new__(cls, integrand, *kept) if kept else integrand

    @property
    def integrand(self) -> sp.Expr:
        """The function that is averaged."""
        return self.args[0]

    @property
    def law(self) -> Law:
        """(symbol, mean, variance) of each variable."""
        return tuple(tuple(entry) for entry in self.args[1:])

    @property
    def variable(self) -> sp.Symbol:
        """The symbol of the first variable, as `mean` and `variance` are its moments."""
        return self.args[1][0]

    @property
    def mean(self) -> sp.Expr:
        """The mean of the first variable."""
        return self.args[1][1]

    @property
    def variance(self) -> sp.Expr:
        """The variance of the first variable."""
        return self.args[1][2]

    @property
    def dimension(self) -> int:
        """The number of variables."""
        return len(self.args) - 1

    @property
    def bound_symbols(self) -> set[sp.Symbol]:
        """The variables."""
        return {entry[0] for entry in self.args[1:]}

    @property
    def free_symbols(self) -> set[sp.Symbol]:
        """All but the variables, unless a mean or a variance has them."""
        moments = [moment.free_symbols for entry in self.args[1:] for moment in entry[1:]]
        return set().union(self.integrand.free_symbols - self.bound_symbols, *moments)

    @property
    def is_number(self) -> bool:
        """Whether it has a numerical value."""
        return not self.free_symbols

    @property
    def smooth(self) -> bool:
        """Whether the integrand is provably differentiable without end in its variables."""
        bound = self.bound_symbols
        return all(_smooth(node) for node in sp.preorder_traversal(self.integrand) if node.free_symbols & bound)

    @property
    def kinks(self) -> tuple[sp.Expr, ...] | None:
        """The points where kinked functions have theirs; None if they are not points or not known."""
        kinked = [k for k in self.integrand.atoms(*KINKED) if k.free_symbols & self.bound_symbols]
        if not kinked:
            return ()
        if self.dimension > 1:
            return None
        lines = [_line(k.args[0], self.variable) for k in kinked]
        points = {-offset / slope for slope, offset in filter(None, lines)}
        return None if None in lines else tuple(sorted(points, key=sp.default_sort_key))

    def doit(self, **hints: Any) -> sp.Expr:
        """Try the rules again, as after a substitution."""
        return expectation(self.integrand, self.law)

    def _renamed(self, clashing: set[sp.Symbol]) -> GaussianIntegral:
        """The same average with variables that do not clash."""
        names = {x: sp.Dummy(x.name, real=True) for x in self.bound_symbols & clashing}
        law = [(names.get(x, x), mean, variance) for x, mean, variance in self.law]
        renamed: GaussianIntegral = self.func(self.integrand.xreplace(names), *law)
        return renamed

    def _eval_subs(self, old: sp.Basic, new: sp.Basic) -> sp.Basic:
        if old == self:
            return new
        node = self._renamed(new.free_symbols)
        bound = bool(old.free_symbols & node.bound_symbols)
        law = [(x, mean._subs(old, new), variance._subs(old, new)) for x, mean, variance in node.law]
        return self.func(node.integrand if bound else node.integrand._subs(old, new), *law)

    def _xreplace(self, rule: Any) -> tuple[sp.Basic, bool]:
        if self in rule:
            return rule[self], True
        node = self._renamed(set().union(*[sp.sympify(v).free_symbols for v in rule.values()]))
        inner = {k: v for k, v in rule.items() if not k.free_symbols & node.bound_symbols}
        law = [(x, mean.xreplace(rule), variance.xreplace(rule)) for x, mean, variance in node.law]
        found = self.func(node.integrand.xreplace(inner), *law)
        return (self, False) if found == self else (found, True)

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        """Under the integral, plus Price's theorem or the score for the moments of the law."""
        f, smooth = self.integrand, self.smooth
        parts = [gaussian_node(_held_derivative(f, s), self.law), *self._moving_jumps(s)]
        for x, mean, variance in self.law:
            score = (x - mean) / variance
            drift = f.diff(x) if smooth else f * score
            spread = f.diff(x, 2) if smooth else f * (score**2 - 1 / variance)
            parts += [
                mean.diff(s) * gaussian_node(drift, self.law),
                variance.diff(s) / 2 * gaussian_node(spread, self.law),
            ]
        return sp.Add(*parts)

    def _moving_jumps(self, s: sp.Symbol) -> list[sp.Expr]:
        """Density times jump times velocity of the points where the integrand jumps."""
        parts = []
        for jump in sorted(self.integrand.atoms(*JUMPING), key=sp.default_sort_key):
            if s not in jump.free_symbols or not jump.free_symbols & self.bound_symbols:
                continue
            line = _line(jump.args[0], self.variable) if self.dimension == 1 else None
            if line is None:
                raise Refusal(
                    f"the derivative in {s} of {self}: its jump at {jump.args[0]} = 0 is not at a known point"
                )
            slope, offset = line
            deviation = sp.sqrt(self.variance)
            above, below = (self.integrand.xreplace({jump: branch(jump, side)}) for side in (1, -1))
            crossing = (above - below) * jump.args[0].diff(s) / sp.Abs(slope)
            density = normal_density((self.variable - self.mean) / deviation) / deviation
            parts.append((crossing * density).xreplace({self.variable: -offset / slope}))
        return parts

    def _eval_evalf(self, prec: int) -> sp.Expr | None:
        if self.free_symbols:
            return None
        with mpmath.workprec(prec + GUARD_BITS):
            value = _quadrature(self)
        return None if value is None else sp.Float._new(value._mpf_, prec)

    def _latex(self, printer: Any) -> str:
        laws = ", ".join(
            rf"{printer._print(x)} \sim \mathcal{{N}}\left({printer._print(m)}, {printer._print(v)}\right)"
            for x, m, v in self.law
        )
        return rf"\mathbb{{E}}_{{{laws}}}\left[{printer._print(self.integrand)}\right]"


def _line(expr: sp.Expr, x: sp.Symbol) -> tuple[sp.Expr, sp.Expr] | None:
    """(slope, offset) of what is linear in x."""
    try:
        return Reader(x, READINGS).line(expr)
    except Open:
        return None


def _smooth(node: sp.Basic) -> bool:
    if isinstance(node, sp.Pow) and not (node.exp.is_Integer and node.exp > 0):
        return bool(node.base.is_positive or (node.exp.is_Integer and node.base.is_nonzero))
    if isinstance(node, sp.log):
        return bool(node.args[0].is_positive)
    return isinstance(node, (sp.Symbol, sp.Add, sp.Mul, sp.Pow, *_ANALYTIC))


def _held_derivative(f: sp.Expr, s: sp.Symbol) -> sp.Expr:
    """df/ds where nothing jumps."""
    held = {jump: sp.Dummy(real=True) for jump in f.atoms(*JUMPING) if s in jump.free_symbols}
    return f.xreplace(held).diff(s).xreplace({d: jump for jump, d in held.items()})


_ANALYTIC = nodes_that(lambda f: f.analytic)
_NUMERIC = {
    **own_values(),
    "owens_t": owens_t_value,
    "bivariate_normal_cdf": bivariate_normal_cdf_value,
}


def _quadrature(node: GaussianIntegral) -> mpf | None:
    """The value at the working precision; None where the error stays above it."""
    f = sp.lambdify([x for x, _, _ in node.law], node.integrand, modules=[_NUMERIC, "mpmath"], cse=True)
    bits = mpmath.mp.prec
    moments = [(m._to_mpmath(bits), mpmath.sqrt(v._to_mpmath(bits))) for _, m, v in node.law]

    def weighted(*t: mpf) -> mpf:
        return f(*[m + s * u for (m, s), u in zip(moments, t)]) * mpmath.fprod(mpmath.npdf(u) for u in t)

    try:
        if node.smooth:
            return _trapezoid(weighted, node.dimension)
        kinks = [(k._to_mpmath(bits) - moments[0][0]) / moments[0][1] for k in node.kinks or ()]
        return _panels(weighted, kinks) if node.dimension == 1 else None
    except (ArithmeticError, ValueError, TypeError):
        return None


def _reach() -> mpf:
    """Where the Gaussian density is far below the precision, with room for integrands that grow."""
    return mpmath.sqrt(2 * mpmath.log(2) * mpmath.mp.prec) * 3 / 2


def _negligible(error: mpf, scale: mpf) -> bool:
    return bool(abs(error) <= mpmath.ldexp(scale, GUARD_BITS // 2 - mpmath.mp.prec))


def _trapezoid(weighted: Callable[..., mpf], dimension: int) -> mpf | None:
    """The trapezoidal rule, exponentially accurate for analytic integrands, with the step halved until it settles."""
    values: list[mpf] = []
    steps = int(2 * _reach())
    while (2 * steps + 1) ** dimension <= MAX_POINTS:
        h = _reach() / steps
        grid = [h * k for k in range(-steps, steps + 1)]
        points = [weighted(*t) for t in product(grid, repeat=dimension)]
        values.append(h**dimension * mpmath.fsum(points))
        scale = h**dimension * mpmath.fsum(points, absolute=True)
        # Halving the step squares the relative error; the power 3/2 leaves room for constants.
        if len(values) > 1 and _negligible(scale * (abs(values[-1] - values[-2]) / scale) ** 1.5, scale):
            return values[-1]
        steps *= 2
    return None


def _panels(weighted: Callable[..., mpf], kinks: list[mpf]) -> mpf | None:
    """Gauss-Legendre on panels that end at the kinks, narrower once if need be."""
    reach = _reach()
    for panels in (PANELS, 4 * PANELS):
        grid = [reach * (2 * mpf(k) / panels - 1) for k in range(panels + 1)]
        points = sorted({*grid, *(k for k in kinks if abs(k) < reach)})
        value, error = mpmath.quad(weighted, points, method="gauss-legendre", error=True)
        scale = mpmath.fsum((b - a) * abs(weighted((a + b) / 2)) for a, b in pairwise(points))
        if _negligible(error, scale):
            return value
    return None
