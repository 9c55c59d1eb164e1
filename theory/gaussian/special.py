"""Special functions of Gaussian averages: Owen's T and the bivariate normal distribution function.

Both reduce to elementary functions where they can, are differentiable inside the family, and have values at any
precision through mpmath; `normal_cdf` and `normal_density` are the standard normal law written with erf and exp.
"""

from __future__ import annotations

from typing import Any

import mpmath
import sympy as sp
from mpmath import mpf

_GUARD_BITS = 40


def normal_density(x: sp.Expr) -> sp.Expr:
    """phi(x)."""
    return sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi)


def normal_cdf(x: sp.Expr) -> sp.Expr:
    """Phi(x)."""
    return (1 + sp.erf(x / sp.sqrt(2))) / 2


def owens_t_value(h: mpf, a: mpf) -> mpf:
    """Owen's T at the working precision of mpmath."""
    h, sign, a = abs(h), mpmath.sign(a), abs(a)
    if a <= 1:
        return sign * _owens_wedge(h, a)
    if mpmath.isinf(a):
        return sign * mpmath.erfc(h / mpmath.sqrt(2)) / 4
    near, far = (mpmath.erfc(u / mpmath.sqrt(2)) / 2 for u in (h, a * h))
    return sign * ((near + far) / 2 - near * far - _owens_wedge(a * h, 1 / a))


def _owens_wedge(h: mpf, a: mpf) -> mpf:
    """The defining integral for 0 <= a <= 1, in panels as wide as the integrand's own scale 1/h."""
    points, width = [mpf(0)], 1 / (1 + h)
    while points[-1] + width < a:
        points.append(points[-1] + width)
        width *= 2
    integral = mpmath.quad(
        lambda x: mpmath.exp(-((h * x) ** 2) / 2) / (1 + x * x), [*points, a], method="gauss-legendre"
    )
    return mpmath.exp(-h * h / 2) * integral / (2 * mpmath.pi)


def bivariate_normal_cdf_value(h: mpf, k: mpf, rho: mpf) -> mpf:
    """P(X < h, Y < k) for correlation rho, at the working precision of mpmath (Plackett's integral in the angle)."""

    def density(angle: mpf) -> mpf:
        return mpmath.exp(-(h * h + k * k - 2 * h * k * mpmath.sin(angle)) / (2 * mpmath.cos(angle) ** 2))

    end = mpmath.asin(rho)
    independent = mpmath.ncdf(h) * mpmath.ncdf(k)
    return independent + mpmath.quad(density, [0, end / 2, end]) / (2 * mpmath.pi)


class owens_t(sp.Function):
    """T(h, a) = (1/2 pi) int_0^a exp(-h^2 (1 + x^2)/2)/(1 + x^2) dx."""

    nargs = 2
    is_real = True

    @classmethod
    def eval(cls, h: sp.Expr, a: sp.Expr) -> sp.Expr | None:
        """The elementary values, and the symmetries T(-h, a) = T(h, a) = -T(h, -a)."""
        if a.is_zero or h.is_infinite:
            return sp.S.Zero
        if h.is_zero:
            return sp.atan(a) / (2 * sp.pi)
        if a is sp.S.Infinity:
            return (1 - sp.erf(sp.Abs(h) / sp.sqrt(2))) / 4
        if a is sp.S.One:
            return (1 - sp.erf(h / sp.sqrt(2)) ** 2) / 8
        if a.could_extract_minus_sign():
            return -cls(h, -a)
        return cls(-h, a) if h.could_extract_minus_sign() else None

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """Both derivatives are elementary."""
        h, a = self.args
        if argindex == 1:
            return -normal_density(h) * sp.erf(a * h / sp.sqrt(2)) / 2
        return sp.exp(-(h**2) * (1 + a**2) / 2) / (2 * sp.pi * (1 + a**2))

    def _eval_evalf(self, prec: int) -> sp.Expr | None:
        return _evaluated(self, owens_t_value, prec)

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _applied_latex("T", self.args, printer, exp)


class bivariate_normal_cdf(sp.Function):
    """Phi_2(h, k, rho) = P(X < h, Y < k) of two standard normals with correlation rho, -1 < rho < 1."""

    nargs = 3
    is_real = True
    is_nonnegative = True

    @classmethod
    def eval(cls, h: sp.Expr, k: sp.Expr, rho: sp.Expr) -> sp.Expr | None:
        """What Owen's T or less expresses; the first two arguments are exchangeable."""
        for one, other in ((h, k), (k, h)):
            if one is sp.S.NegativeInfinity:
                return sp.S.Zero
            if one is sp.S.Infinity:
                return normal_cdf(other)
            if one.is_zero:
                return normal_cdf(other) / 2 + owens_t(other, rho / sp.sqrt(1 - rho**2))
        if rho.is_zero:
            return normal_cdf(h) * normal_cdf(k)
        if h == k:
            return normal_cdf(h) - 2 * owens_t(h, sp.sqrt((1 - rho) / (1 + rho)))
        if h == -k:
            return 2 * owens_t(h, sp.sqrt((1 + rho) / (1 - rho)))
        return None if sp.default_sort_key(h) <= sp.default_sort_key(k) else cls(k, h, rho)

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """In h or k a density times a conditional probability, in rho the joint density."""
        h, k, rho = self.args
        spread = sp.sqrt(1 - rho**2)
        if argindex == 3:
            return sp.exp(-(h**2 + k**2 - 2 * rho * h * k) / (2 * (1 - rho**2))) / (2 * sp.pi * spread)
        one, other = (h, k) if argindex == 1 else (k, h)
        return normal_density(one) * normal_cdf((other - rho * one) / spread)

    def _eval_evalf(self, prec: int) -> sp.Expr | None:
        return _evaluated(self, bivariate_normal_cdf_value, prec)

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _applied_latex(r"\Phi_2", self.args, printer, exp)


def _evaluated(node: sp.Expr, value: Any, prec: int) -> sp.Expr | None:
    """The node's value to `prec` bits, None unless all arguments are real numbers."""
    numbers = [a.evalf(mpmath.libmp.prec_to_dps(prec + 2 * _GUARD_BITS)) for a in node.args]
    if not all(n.is_Float or n.is_Rational or n.is_infinite for n in numbers):
        return None
    with mpmath.workprec(prec + _GUARD_BITS):
        found = value(*[n._to_mpmath(prec + 2 * _GUARD_BITS) for n in numbers])
    return sp.Float._new(found._mpf_, prec)


def _applied_latex(name: str, args: tuple[sp.Expr, ...], printer: Any, exp: str | None) -> str:
    power = f"^{{{exp}}}" if exp else ""
    return rf"{name}{power}\left({', '.join(printer._print(a) for a in args)}\right)"
