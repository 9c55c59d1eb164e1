"""Activations given as Python functions: of one score, of all scores at once, or of (x, sum, L).

A function of all scores is tested for permutation equivariance; a broken one is refused with the exchange of tokens
that shows it. From a sound one the token form f(x, S_1..S_r, L) is recovered: sums over tokens of equal shape become
`TokenSum`s, numbers that change with the number of tokens become rational functions of L, and the result is compared
with the function at two to six tokens before it is handed on.
"""

from __future__ import annotations

import inspect
import itertools
import random
from collections.abc import Callable, Iterable, Sequence

import mpmath
import sympy as sp
from mpmath import mpf
from sympy.core.function import AppliedUndef

from replicode.theory.calculus.expansion import expanded
from replicode.theory.calculus.numeric import Program, Undefined, exchanged, shown
from replicode.theory.errors import InputError, LanguageError, Refusal
from replicode.theory.language import ALLOWED, parse, unparse
from replicode.theory.language.nodes import L, TokenSum, X, relu

Function = Callable[..., object]

_SHAPES = (
    "a function of (x, sum, L), of one score x, or of the tuple of all scores, which then returns "
    "one SymPy expression per token"
)
_WRITE = "write it with sum(...), as a function of (x, sum, L)"
_MOST_NODES = 20_000
_LEARNT = (5, 6, 7, 10)  # square-free, and beyond where L - 1 or L - 2 would be 0 or 1 by accident
_COMPARED = (2, 3, 4, 5, 6)
_EXCHANGED = (2, 3, 4)
_SCALES = (1.0, 1.0, 4.0, 30.0, 300.0)
_DIGITS = 50
_AGREE = mpf(10) ** -30


def function_expression(function: Function) -> sp.Expr:
    """The token form of an activation that is given as a Python function."""
    arity = _arity(function)
    if arity == 3:
        return _checked(function, _expression(function, _called(function, X, TokenSum, L)))
    if arity != 1:
        raise InputError("activation", _name(function), f"{_SHAPES}; this one takes {arity} arguments")
    single = _single(function)
    return _checked(function, single) if single is not None else _recovered(function)


def sympy_expression(given: sp.Expr) -> sp.Expr:
    """The token form of a SymPy expression: symbols are known by name, an undefined function `sum` runs over tokens."""
    ours = {"x": X, "L": L}
    named = given.xreplace({s: ours[s.name] for s in given.atoms(sp.Symbol) if s.name in ours})
    summed = named.replace(lambda e: isinstance(e, AppliedUndef) and e.name == "sum", lambda e: TokenSum(*e.args))

    def expression(x: sp.Symbol, sum: object, L: sp.Symbol) -> sp.Expr:
        return summed

    return function_expression(expression)


def _name(function: Function) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _arity(function: Function) -> int:
    """The number of arguments without a default."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(p.kind is inspect.Parameter.KEYWORD_ONLY and p.default is p.empty for p in found):
        return -1
    return sum(p.kind in plain and p.default is p.empty for p in found) or len([p for p in found if p.kind in plain])


def _called(function: Function, *arguments: object) -> object:
    try:
        return function(*arguments)
    except Exception as problem:  # a user's function may raise anything
        reason = f"{type(problem).__name__}: {problem}".strip().rstrip(":")
        raise InputError("activation", _name(function), f"{_SHAPES}; this one raised {reason[:200]}") from problem


def _expression(function: Function, result: object) -> sp.Expr:
    """A SymPy expression of bounded size, floats made exact."""
    if isinstance(result, bool | str) or result is None:
        raise InputError("activation", _name(function), f"{_SHAPES}; this one returned {result!r}")
    try:
        expr = sp.sympify(result, strict=True)
    except (sp.SympifyError, TypeError, ValueError):
        raise InputError("activation", _name(function), f"{_SHAPES}; this one returned {_cut(result)}") from None
    if not isinstance(expr, sp.Expr):
        raise InputError("activation", _name(function), f"{_SHAPES}; this one returned {_cut(result)}")
    size = sum(1 for _ in itertools.islice(sp.preorder_traversal(expr), _MOST_NODES + 1))
    if size > _MOST_NODES:
        raise InputError("activation", _name(function), f"an expression of at most {_MOST_NODES} parts")
    if expr.has(sp.nan, sp.zoo, sp.oo, -sp.oo, sp.I):
        raise InputError("activation", _name(function), f"finite real expressions; this one returned {_cut(expr)}")
    return _plain(expr)


def _cut(value: object) -> str:
    text = repr(value) if not isinstance(value, sp.Basic) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _plain(expr: sp.Expr) -> sp.Expr:
    """Floats as the decimals they print, hyperbolic functions as exponentials, a maximum of two as relu."""
    exact = {f: sp.Rational(str(float(f))) for f in expr.atoms(sp.Float)}
    reals = {s: sp.Symbol(s.name, real=True) for s in expr.atoms(sp.Symbol) if _is_parameter(s)}
    plain: sp.Expr = expr.xreplace({**exact, **reals})
    for function in (sp.sinh, sp.cosh, sp.coth, sp.sech, sp.csch):
        plain = plain.replace(function, lambda u, f=function: f(u).rewrite(sp.exp))
    return plain.replace(sp.Max, lambda *a: a[0] + relu(a[1] - a[0]) if len(a) == 2 else sp.Max(*a)).replace(
        sp.Min, lambda *a: a[0] - relu(a[0] - a[1]) if len(a) == 2 else sp.Min(*a)
    )


def _is_parameter(symbol: sp.Symbol) -> bool:
    return symbol not in (X, L) and not isinstance(symbol, sp.Dummy)


def _single(function: Function) -> sp.Expr | None:
    """The expression of a function of one score; None when the function needs all of them."""
    try:
        result = function(X)
    except Exception:  # it is then called with all scores, and says what is wrong there
        return None
    return _expression(function, result) if isinstance(result, sp.Expr | int | float) else None


def _checked(function: Function, expr: sp.Expr) -> sp.Expr:
    """The expression as the language reads it, which bounds it and keeps foreign nodes out."""
    if X in (expr.atoms(sp.Symbol) - expr.free_symbols) and not expr.has(TokenSum):
        raise InputError("activation", _name(function), _SHAPES)
    try:
        return parse(unparse(expr))
    except LanguageError as fault:
        problem = f"{fault.problem}; allowed is {fault.allowed}"
    except InputError:
        foreign = sorted({type(p).__name__ for p in sp.preorder_traversal(expr) if not _is_readable(p)})
        problem = f"{ALLOWED}; not {', '.join(foreign) or 'this'}"
    raise InputError("activation", f"{_name(function)}: {_cut(expr)}", problem)


def _is_readable(part: sp.Basic) -> bool:
    try:
        unparse(part.func(*[X] * len(part.args)) if part.args else part)
    except Exception:  # whatever the node makes of a plain score
        return False
    return True


def _tokens(count: int) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Dummy(f"x_{i + 1}", real=True) for i in range(count))


def _all_tokens(function: Function, count: int) -> tuple[tuple[sp.Symbol, ...], tuple[sp.Expr, ...]]:
    """The scores of `count` tokens and what the function returns for them."""
    scores = _tokens(count)
    result = _called(function, scores)
    if isinstance(result, sp.MatrixBase):
        result = list(result)
    if not isinstance(result, Sequence) or isinstance(result, str):
        raise InputError("activation", _name(function), f"{_SHAPES}; for {count} scores it returned {_cut(result)}")
    if len(result) != count:
        raise InputError(
            "activation", _name(function), f"one expression per token; for {count} scores it returned {len(result)}"
        )
    exprs = tuple(_expression(function, r) for r in result)
    foreign = set().union(*[e.free_symbols for e in exprs]) - set(scores)
    if odd := sorted(str(s) for s in foreign if isinstance(s, sp.Dummy) or s in (X, L)):
        raise InputError("activation", _name(function), f"expressions in the scores it is given, not in {odd}")
    return scores, exprs


class _Values:
    """The function's expressions at one number of tokens, evaluated at random parameters."""

    def __init__(self, function: Function, count: int) -> None:
        self.name, self.count = _name(function), count
        self.scores, self.exprs = _all_tokens(function, count)
        rng = random.Random(31 + count)
        free = set().union(*[e.free_symbols for e in self.exprs]) - set(self.scores)
        self.parameters = {s: mpf(rng.uniform(0.3, 1.2)) for s in sorted(free, key=lambda s: s.name)}
        self.programs = [Program(e, self.parameters, self.scores) for e in self.exprs]

    def at(self, point: Sequence[mpf]) -> list[mpf]:
        """The values at one point."""
        return [program.first(point) for program in self.programs]

    def points(self) -> list[list[mpf]]:
        """Random points at which the function has values, of growing size."""
        rng = random.Random(97 + self.count)
        found: list[list[mpf]] = []
        for attempt in range(20):
            point = [mpf(rng.gauss(0.0, _SCALES[attempt % len(_SCALES)])) for _ in range(self.count)]
            try:
                self.at(point)
            except Undefined:
                continue
            found.append(point)
            if len(found) == len(_SCALES):
                break
        if not found:
            raise InputError("activation", self.name, "a function that is real and finite at random scores")
        return found


def check_equivariance(function: Function) -> None:
    """Refuse a function of all scores that an exchange of two tokens does not commute with."""
    with mpmath.workdps(_DIGITS):
        for count in _EXCHANGED:
            values = _Values(function, count)
            for point, (i, j) in itertools.product(values.points(), itertools.combinations(range(count), 2)):
                _check_exchange(values, point, i, j)


def _check_exchange(values: _Values, point: Sequence[mpf], i: int, j: int) -> None:
    moved = exchanged(point, i, j)
    try:
        plain, after = values.at(point), values.at(moved)
    except Undefined as problem:
        raise InputError(
            "activation", values.name, f"a real and finite function; at scores {shown(moved)}: {problem}"
        ) from None
    for token, (a, b) in enumerate(zip(exchanged(plain, i, j), after)):
        if abs(a - b) > _AGREE * (1 + abs(a)):
            raise InputError(
                "activation",
                values.name,
                f"a permutation-equivariant function: at scores {shown(point)} exchanging tokens {i + 1} and {j + 1} "
                f"must give {mpmath.nstr(a, 8)} at token {token + 1}, it gives {mpmath.nstr(b, 8)}",
            )


def _recovered(function: Function) -> sp.Expr:
    """The token form of a function of all scores."""
    check_equivariance(function)
    forms = []
    for count in _LEARNT:
        scores, exprs = _all_tokens(function, count)
        forms.append(_token_form(_name(function), exprs[0], scores))
    expr = _aligned(forms)
    if expr is None:
        raise Refusal(
            f"activation {_name(function)}: its dependence on the number of tokens was not recognised; {_WRITE}"
        )
    expr = _checked(function, expr)
    _compare(function, expr)
    return expr


def _compare(function: Function, expr: sp.Expr) -> None:
    with mpmath.workdps(_DIGITS):
        for count in _COMPARED:
            values = _Values(function, count)
            program = Program(expr, {**dict.fromkeys(expr.free_symbols - {X, L}, 0.5), **values.parameters})
            for point in values.points():
                try:
                    same = all(abs(a - b) <= _AGREE * (1 + abs(a)) for a, b in zip(values.at(point), program(point)))
                except Undefined:
                    same = False
                if not same:
                    raise Refusal(
                        f"activation {values.name}: no one form f(x, sums, L) describes it at every number of tokens "
                        f"({unparse(expr)} fails at {count} tokens, scores {shown(point)}); {_WRITE}"
                    )


def _token_form(name: str, expr: sp.Expr, scores: Sequence[sp.Symbol]) -> sp.Expr:
    """The expression of the first token with sums over tokens recognised, at one number of tokens."""
    for attempt in (sp.S, sp.expand_power_exp, expanded):
        sums = _Abstraction(scores)
        found = sums.abstracted(attempt(expr))
        if not found.free_symbols & set(scores[1:]):
            return sums.resolved(found.xreplace({scores[0]: X}))
    raise Refusal(f"activation {name}: its dependence on the other tokens is no function of sums over tokens; {_WRITE}")


class _Abstraction:
    """Replaces, from the inside out, sums of one body over the tokens (all, or all but one) by names of token sums."""

    def __init__(self, scores: Sequence[sp.Symbol]) -> None:
        self.scores = tuple(scores)
        self.tokens = set(scores)
        self.names: dict[sp.Expr, sp.Symbol] = {}

    def resolved(self, expr: sp.Expr) -> sp.Expr:
        """The expression with the names replaced by their token sums."""
        bodies = {name: body for body, name in self.names.items() if name in expr.free_symbols}
        return expr.xreplace({name: TokenSum(self.resolved(body)) for name, body in bodies.items()})

    def _sum(self, body: sp.Expr) -> sp.Symbol:
        return self.names.setdefault(body, sp.Dummy(f"S_{len(self.names) + 1}", real=True))

    def abstracted(self, expr: sp.Expr) -> sp.Expr:
        """The expression with every recognised sum replaced."""
        if not expr.args or not expr.free_symbols & self.tokens:
            return expr
        node = expr.func(*[self.abstracted(a) for a in expr.args])
        if node.is_Mul:
            return self._merged(node)
        if not node.is_Add:
            return node
        found = self._collected(node)
        if self._is_open(found):
            again = self._collected(expanded(found))
            if again.is_Add is False or not self._is_open(again):
                return again
        return found

    def _merged(self, node: sp.Expr) -> sp.Expr:
        """A product of exponentials over the tokens as the exponential of a sum."""
        exponents, others = sp.sift(node.args, lambda f: isinstance(f, sp.exp), binary=True)
        merged = self.abstracted(sp.Add(*[e.args[0] for e in exponents]))
        return sp.Mul(sp.exp(merged), *others) if len(exponents) > 1 and not self._is_open(merged) else node

    def _split(self, term: sp.Expr) -> sp.Expr:
        """exp(a + b) as exp(a) exp(b) where that sets tokens apart."""
        return term.replace(sp.exp, lambda u: sp.expand_power_exp(sp.exp(u)) if self._is_mixed(u) else sp.exp(u))

    def _is_mixed(self, expr: sp.Expr) -> bool:
        return len(expr.free_symbols & self.tokens) > 1

    def _is_open(self, expr: sp.Expr) -> bool:
        return any(self._is_mixed(t) for t in sp.Add.make_args(expr))

    def _collected(self, node: sp.Expr) -> sp.Expr:
        """Sum terms c_j b(x_j) whose factor c_j is the same at all tokens but one at most."""
        total = sp.Add(*[self._split(t) for t in sp.Add.make_args(node)])
        for body, factors in self._families(sp.Add.make_args(total)).items():
            for factor in dict.fromkeys(factors.values()):
                alike = [s for s in self.scores if factors.get(s) == factor]
                left_out = [s for s in self.scores if s not in alike]
                if len(alike) < len(self.scores) - 1 or len(alike) < 2 or factor.free_symbols & set(alike):
                    continue
                own = sp.Add(*[factor * body.xreplace({X: s}) for s in left_out])
                gone = sp.Add(*[factor * body.xreplace({X: s}) for s in alike])
                total = total - gone + factor * self._sum(body) - own
                break
        return total

    def _families(self, terms: Iterable[sp.Expr]) -> dict[sp.Expr, dict[sp.Symbol, sp.Expr]]:
        """body -> token -> factor, over the ways to read a term as factor * body(token)."""
        families: dict[sp.Expr, dict[sp.Symbol, sp.Expr]] = {}
        for term in terms:
            for token in sorted(term.free_symbols & self.tokens, key=lambda s: self.scores.index(s)):
                factor, inner = term.as_independent(token, as_Add=False)
                if inner.free_symbols & self.tokens != {token}:
                    continue
                slot = families.setdefault(inner.xreplace({token: X}), {})
                slot[token] = slot.get(token, sp.S.Zero) + factor
        return families


def _aligned(forms: Sequence[sp.Expr]) -> sp.Expr | None:
    """One expression in L that gives each of the forms at its number of tokens."""
    first = forms[0]
    if all(f == first for f in forms):
        return first
    if all(f.is_Rational for f in forms):
        return _in_length(forms)
    for kind, split, neutral in ((sp.Add, "as_coeff_Add", sp.S.Zero), (sp.Mul, "as_coeff_Mul", sp.S.One)):
        if any(isinstance(f, kind) for f in forms):
            numbers, rests = zip(*[getattr(f, split)() for f in forms])
            number, rest = _aligned(numbers), _matched(kind, rests)
            return None if number is None or rest is None else kind(neutral, number, rest)
    return _matched_arguments(first.func, [f.args for f in forms]) if _alike(forms) else None


def _alike(forms: Sequence[sp.Expr]) -> bool:
    return len({(f.func, len(f.args)) for f in forms}) == 1 and bool(forms[0].args)


def _matched(kind: type[sp.Expr], rests: Sequence[sp.Expr]) -> sp.Expr | None:
    """Terms (or factors) matched by their shape, numbers apart."""
    parts = [sorted(kind.make_args(r), key=_shape) for r in rests]
    if len({tuple(map(_shape, p)) for p in parts}) != 1:
        return None
    return _matched_arguments(kind, parts)


def _matched_arguments(kind: type[sp.Expr], parts: Sequence[Sequence[sp.Expr]]) -> sp.Expr | None:
    if len(parts[0]) == 1 and kind in (sp.Add, sp.Mul):
        return _aligned([p[0] for p in parts])
    found = [_aligned(column) for column in zip(*parts)]
    return None if any(f is None for f in found) else kind(*found)


def _shape(expr: sp.Expr) -> str:
    """The tree without its numbers."""
    if expr.is_Number:
        return "#"
    if not expr.args:
        return str(expr)
    inner = [_shape(a) for a in expr.args if not (a.is_Number and (expr.is_Add or expr.is_Mul))]
    if expr.is_Add or expr.is_Mul:
        inner.sort()
        if len(inner) == 1:
            return inner[0]
    return f"{expr.func.__name__}({', '.join(inner)})"


def _in_length(numbers: Sequence[sp.Expr]) -> sp.Expr | None:
    """The numbers at the learnt lengths as L^k (a + b L)/(c + d L)."""
    for power in (0, 1, -1, 2, -2):
        rows = [
            [1, length, -n * length**power, -n * length ** (power + 1)]
            for length, n in zip(map(sp.Integer, _LEARNT), numbers)
        ]
        for a, b, c, d in sp.Matrix(rows).nullspace():
            if all(c + d * length != 0 for length in _LEARNT):
                return sp.factor((a + b * L) / (c + d * L)) / L**power
    return None
