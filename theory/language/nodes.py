"""SymPy nodes of our own: the sum over tokens, and functions whose derivatives stay stable.

`TokenSum(body)` is sum_l body(x_l, w_l) with `X` and `W` bound inside it; it is linear by construction, so that
`sum(softmax) = 1` and shift invariance are found by plain algebra for symbolic L.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

X = sp.Symbol("x", real=True)
W = sp.Symbol("w", real=True)
RADIUS = sp.Symbol("r", positive=True)
L = sp.Symbol("L", positive=True, integer=True)


class TokenSum(sp.Function):
    """sum over the tokens l = 1..L of the body taken at the token's x = x_l and w = w_l."""

    nargs = 1
    is_real = True

    @classmethod
    def eval(cls, body: sp.Expr) -> sp.Expr | None:
        """Pull out what does not depend on the token, and split sums."""
        if not body.free_symbols & {X, W}:
            return L * body
        if body.is_Add:
            return sp.Add(*[cls(term) for term in body.args])
        if body.is_Mul:
            inner, outer = sp.sift(body.args, lambda a: bool(a.free_symbols & {X, W}), binary=True)
            if outer:
                return sp.Mul(*outer) * cls(sp.Mul(*inner))
        return None

    @property
    def free_symbols(self) -> set[sp.Symbol]:
        """X and W are bound by the sum."""
        symbols: set[sp.Symbol] = self.args[0].free_symbols - {X, W}
        return symbols

    def _eval_subs(self, old: sp.Basic, new: sp.Basic) -> sp.Basic | None:
        return self if old in (X, W) else None

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        return sp.S.Zero if s in (X, W) else TokenSum(self.args[0].diff(s))

    def _eval_is_positive(self) -> bool | None:
        return True if self.args[0].is_positive else None

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"\sum_{{\ell}} {printer._print(self.args[0])}"
        return rf"\left({text}\right)" + (f"^{{{exp}}}" if exp else "")


class sigmoid(sp.Function):
    """1 / (1 + exp(-x))."""

    nargs = 1
    is_real = True
    is_positive = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """sigmoid' = sigmoid(x) sigmoid(-x), which never cancels."""
        return sigmoid(self.args[0]) * sigmoid(-self.args[0])

    def _eval_rewrite_as_exp(self, arg: sp.Expr, **_: Any) -> sp.Expr:
        return 1 / (1 + sp.exp(-arg))

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.exp)._eval_evalf(prec)


class softplus(sp.Function):
    """log(1 + exp(x))."""

    nargs = 1
    is_real = True
    is_positive = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """softplus' = sigmoid."""
        return sigmoid(self.args[0])

    def _eval_rewrite_as_exp(self, arg: sp.Expr, **_: Any) -> sp.Expr:
        return sp.log(1 + sp.exp(arg))

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.exp)._eval_evalf(prec)


class tanh(sp.Function):
    """tanh(x); its derivative does not cancel, which counts where the argument itself grows without bound."""

    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """tanh' = 4 sigmoid(2 x) sigmoid(-2 x)."""
        return 4 * sigmoid(2 * self.args[0]) * sigmoid(-2 * self.args[0])

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return sp.tanh(self.args[0])._eval_evalf(prec)


class step(sp.Function):
    """1 where the argument is positive, else 0."""

    nargs = 1
    is_real = True
    is_nonnegative = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """0: the jump at the kink is carried by whoever integrates over it."""
        return sp.S.Zero

    def _eval_evalf(self, prec: int) -> sp.Expr:
        value = self.args[0]._evalf(prec)
        if not value.is_comparable:
            return step(value)
        return sp.Float(1, precision=prec) if value > 0 else sp.S.Zero


class relu(sp.Function):
    """max(x, 0)."""

    nargs = 1
    is_real = True
    is_nonnegative = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """relu' = step."""
        return step(self.args[0])

    def _eval_evalf(self, prec: int) -> sp.Expr:
        value = self.args[0]._evalf(prec)
        if not value.is_comparable:
            return relu(value)
        return value if value > 0 else sp.S.Zero


class log_ndtr(sp.Function):
    """log of the normal distribution function, log(erfc(-x/sqrt(2))/2)."""

    nargs = 1
    is_real = True
    is_negative = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """The inverse Mills ratio phi/Phi, which never underflows against itself."""
        return sp.sqrt(2 / sp.pi) / erfcx(-self.args[0] / sp.sqrt(2))

    def _eval_rewrite_as_erfc(self, arg: sp.Expr, **_: Any) -> sp.Expr:
        return sp.log(sp.erfc(-arg / sp.sqrt(2), evaluate=False) / 2)

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.erfc)._eval_evalf(prec)


class erfc(sp.Function):
    """1 - erf(x); SymPy's own turns erfc(-x) into 2 - erfc(x), which loses the tail to cancellation."""

    nargs = 1
    is_real = True
    is_positive = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """-2 exp(-x^2)/sqrt(pi), the same for erfc(x) and erfc(-x)."""
        arg = self.args[0]
        return -2 * sp.exp(-((-arg if arg.could_extract_minus_sign() else arg) ** 2)) / sp.sqrt(sp.pi)

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return sp.erfc(self.args[0], evaluate=False)._eval_evalf(prec)


class erfcx(sp.Function):
    """exp(x^2) erfc(x)."""

    nargs = 1
    is_real = True
    is_positive = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """2 x erfcx(x) - 2/sqrt(pi), without its cancellation."""
        return -2 * ierfcx(self.args[0], 1)

    def _eval_rewrite_as_erfc(self, arg: sp.Expr, **_: Any) -> sp.Expr:
        return sp.exp(arg**2) * sp.erfc(arg, evaluate=False)

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.erfc)._eval_evalf(prec)


class ierfcx(sp.Function):
    """exp(x^2) times the n-fold integral of erfc from x to infinity."""

    nargs = 2
    is_real = True
    is_positive = True

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        """-2 (n + 1) times the next one: 2 n i^n erfc = i^(n-2) erfc - 2 x i^(n-1) erfc."""
        arg, order = self.args
        return -2 * (order + 1) * ierfcx(arg, order + 1)

    def _eval_rewrite_as_erfc(self, arg: sp.Expr, order: sp.Expr, **_: Any) -> sp.Expr:
        before, last = 2 / sp.sqrt(sp.pi), erfcx(arg).rewrite(sp.erfc)
        for n in range(1, int(order) + 1):
            before, last = last, (before - 2 * arg * last) / (2 * n)
        return last

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return self.rewrite(sp.erfc)._eval_evalf(prec)


class loss_prox(sp.Function):
    """The u at which (u - U)^2/(2 tau) + loss(y, u) is least, of (y, U, tau); what the loss is, the model says."""

    nargs = 3
    is_real = True


class held(sp.Function):
    """The value of its argument, constant to every derivative: a scale on which the whole does not depend."""

    nargs = 1
    is_real = True

    def _eval_derivative(self, s: sp.Symbol) -> sp.Expr:
        return sp.S.Zero


class softplus_mantissa(sp.Function):
    """softplus(x) exp(-min(x, 0)), between log 2 and 1 for x < 0."""

    nargs = 1
    is_real = True
    is_positive = True

    def _eval_evalf(self, prec: int) -> sp.Expr:
        return (softplus(self.args[0]) * sp.exp(-sp.Min(self.args[0], 0)))._eval_evalf(prec)


class erfc_mantissa(sp.Function):
    """ierfcx(x, n) exp(-min(x, 0)^2), which neither underflows nor overflows."""

    nargs = 2
    is_real = True
    is_positive = True

    def _eval_evalf(self, prec: int) -> sp.Expr:
        arg, order = self.args
        return (ierfcx(arg, order).rewrite(sp.erfc) * sp.exp(-(sp.Min(arg, 0) ** 2)))._eval_evalf(prec)
