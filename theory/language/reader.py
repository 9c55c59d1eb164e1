"""The expression language of activations and task log-weights, read into SymPy.

`parse` reads `exp(x)/sum(exp(x))` or `sqrt(nu)*x - nu/2`. The text is scanned, then parsed by `ast` and rebuilt node
by node from a white list: nothing the user types is ever evaluated as code.
All numbers stay exact and bounded, so that no text makes SymPy compute for long or run out of memory.
"""

from __future__ import annotations

import ast
import keyword
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import NoReturn

import sympy as sp

from replicode.theory.errors import InputError, LanguageError
from replicode.theory.language.functions import BY_NAME, nodes_that
from replicode.theory.language.nodes import L, TokenSum, X
from replicode.theory.language.writer import MAX_DIGITS, unparse
from replicode.theory.registry import ACTIVATIONS

MAX_LENGTH = 2000
MAX_DEPTH = 20
MAX_TREE = 60
MAX_NODES = 500
MAX_STEPS = 1_500_000
MAX_SUMS = 3
MAX_EXPONENTIALS = 2
MAX_DECADES = 300
MAX_POWER = 64
MAX_ARGUMENT = 10**6
MAX_NAME = 32

LARGEST = 10**MAX_DECADES
# SymPy raises the primes of a number to as much as the denominator of its exponent: its divisors bound that.
ROOTS = 12600

_TAKEN = (
    "e E I S N O Q U inf nan oo m_k q_k V_k m_v q_v V_v mh_k qh_k Vh_k mh_v qh_v Vh_v "
    "alpha noise lambda_k lambda_v init start tol digits derivatives branches stability quick spectrum radii w y z"
)
RESERVED = frozenset(_TAKEN.split())
# The sums over tokens, their derivatives (calculus/tokens.py) and the fields have names of these shapes.
_TAKEN_SHAPES = re.compile(r"(?:[SABK]|[ab][xw])_\d+|(?:w|G|dEM)_\w+")


def _mean(body: sp.Expr) -> sp.Expr:
    """The average over the tokens."""
    return TokenSum(body) / L


FUNCTIONS: Mapping[str, Callable[[sp.Expr], sp.Expr]] = MappingProxyType(
    {name: function.build for name, function in BY_NAME.items()} | {"sum": TokenSum, "mean": _mean}
)
CONSTANTS: Mapping[str, sp.Expr] = MappingProxyType(
    {"x": X, "L": L, "pi": sp.pi, "nu": sp.Symbol("nu", nonnegative=True)}
)

_BOUNDED = tuple(name for name, function in BY_NAME.items() if function.analytic)
_EXPONENTIAL, _EXPLOSIVE = nodes_that(lambda f: f.exponential), nodes_that(lambda f: f.explosive)
_GROWING = ", ".join(name for name, function in BY_NAME.items() if function.explosive)
_CALLS = f"the functions of one argument {', '.join(FUNCTIONS)}"
_NAMES = (
    f"x, L, pi or a parameter: a letter, then letters, digits and single underscores, {MAX_NAME} at most, "
    f"other than the functions, Python's keywords, {_TAKEN}, and names like S_1, A_1, B_1, K_1, bx_1, w_k and G_k"
)
_NUMBERS = f"decimal numbers such as 2, 0.5 or 1e-3, up to {MAX_DIGITS} digits and 1e{MAX_DECADES} in size"
_SIZES = f"numbers between 1e-{MAX_DECADES} and 1e{MAX_DECADES} in size"
_POWERS = f"numbers up to {MAX_POWER} in size in an exponent, or a parameter"
_ROOTS = f"exponents of numbers with two decimals, or fractions whose denominator divides {ROOTS}"
_INSTEAD = dict.fromkeys("eE", "exp(1) for Euler's number, or ")
_INSTEAD |= dict.fromkeys(("inf", "nan", "oo"), "finite numbers, or ")
_ELSEWHERE = {
    "max": "relu(x) for the larger of x and 0",
    "ln": "log(x)",
    "gelu": "x*(1 + erf(x/sqrt(2)))/2",
    "silu": "x*sigmoid(x)",
    "swish": "x*sigmoid(x)",
    "logistic": "sigmoid(x)",
    "arctan": "atan(x)",
}
_INTRICATE = ("this is too intricate for SymPy", "a simpler expression, or parameters for its constants")
_ARGUMENTS = f"constants up to {MAX_ARGUMENT} in size as arguments of {', '.join(_BOUNDED)}"
_REAL = "expressions that are real for real x: logarithms and roots of what can be positive"
ALLOWED = (
    "numbers, x (the token's own score), L (the number of tokens), pi, named parameters, + - * / **, "
    f"brackets, and {_CALLS} (sum and mean run over the tokens)"
)


@dataclass(frozen=True)
class Vocabulary:
    """What a text may speak of: functions, names that stand for something, and what is said of both in messages.

    Where it is `closed` there are no parameters: a name that stands for nothing is an error.
    """

    functions: Mapping[str, Callable[[sp.Expr], sp.Expr]]
    constants: Mapping[str, sp.Expr]
    calls: str
    names: str
    allowed: str
    closed: bool = False

    @staticmethod
    def of(constants: Mapping[str, sp.Expr], told: str, **functions: Callable[[sp.Expr], sp.Expr]) -> Vocabulary:
        """The functions of one argument, others beside them, and these names alone; `told` says what they are."""
        known = {name: function.build for name, function in BY_NAME.items()} | functions
        calls = f"the functions of one argument {', '.join(known)}"
        allowed = f"numbers, {told}, pi, + - * / **, brackets, and {calls}"
        return Vocabulary(known, {**constants, "pi": sp.pi}, calls, f"{told} or pi", allowed, closed=True)


TOKEN_WORDS = Vocabulary(FUNCTIONS, CONSTANTS, _CALLS, _NAMES, ALLOWED)

_TOKEN = re.compile(
    r"""(?P<blank>[ \t]+)
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    |(?P<name>[A-Za-z_]\w*)
    |(?P<malformed>\d[\w.]*)
    |(?P<bracket>[()])
    |(?P<sign>\*\*|/(?!/)|[-+*,])
    |(?P<other>//|.)""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_HINTS = {
    "^": "** for powers",
    "//": "/ for division",
    ".": "names without attributes; a point belongs in a number such as 0.5",
    "=": "an expression without comparisons or assignments; parameters are set apart, by --param c=0.5",
    "\n": "an expression on one line",
}


def parse(text: str, argument: str = "activation", words: Vocabulary = TOKEN_WORDS) -> sp.Expr:
    """The SymPy expression that `text` means; `argument` names it in error messages."""
    if not isinstance(text, str):
        raise InputError(argument, text, "text in the expression language")
    try:
        with _budget(MAX_STEPS):
            return _settled(argument, text, words)
    except (RecursionError, _Exhausted) as fault:
        raise LanguageError(argument, text, 0, *_INTRICATE) from fault


def instead_of(name: str) -> str:
    """What may have been meant by an unknown function: a registered activation, one known elsewhere, or a near name."""
    if name in ACTIVATIONS:
        return f"{name} alone, without an argument, which is {ACTIVATIONS[name].content}; or "
    near = get_close_matches(name, FUNCTIONS, 1)
    meant = _ELSEWHERE.get(name) or (near[0] if near else None)
    return f"{meant}, if that is meant; or " if meant else ""


def check_names(expr: sp.Expr, argument: str) -> None:
    """Refuse an expression, however it was made, with a symbol that is not what its name means in the language."""
    for symbol in sorted(expr.free_symbols - set(CONSTANTS.values()), key=lambda s: str(s.name)):
        if parse(symbol.name, argument) != symbol:
            raise InputError(argument, symbol, f"{_NAMES}, as a real symbol of SymPy")


def _settled(argument: str, text: str, words: Vocabulary) -> sp.Expr:
    """Read until writing and reading again changes nothing: not every SymPy form is a fixed point of that."""
    expr = _Reader(argument, text, words).read()
    for _ in range(4):
        try:
            again = _Reader(argument, unparse(expr), words).read()
        except LanguageError as fault:
            problem = f"once simplified, it is refused: {fault.problem}"
            raise LanguageError(argument, text, 0, problem, fault.allowed) from fault
        if again == expr:
            return expr
        expr = again
    raise LanguageError(argument, text, 0, *_INTRICATE)


class _Exhausted(BaseException):
    """The budget of `parse` is spent. Not an Exception, lest SymPy take it for one of its own."""


@contextmanager
def _budget(steps: int) -> Iterator[None]:
    """Stop what runs inside after so many calls, for SymPy's queries can take exponential time.

    Unlike an alarm this works in any thread and on any machine alike. A profiler needs the same hook: then
    there is no limit.
    """
    if sys.getprofile() is not None:
        yield
        return
    left = steps

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal left
        left -= 1
        # Not at other events: an exception raised while a generator is being closed would be lost.
        if left < 0 and event == "c_call":
            raise _Exhausted

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


class _Reader:
    """Reads one text; every refusal points at the column where the text goes wrong."""

    def __init__(self, argument: str, text: str, words: Vocabulary) -> None:
        self.argument, self.text, self.words = argument, text, words
        self.start = len(text) - len(text.lstrip(" \t"))
        self.sound: set[sp.Basic] = set()

    def read(self) -> sp.Expr:
        """The expression, checked at every step of its construction."""
        if len(self.text) > MAX_LENGTH:
            self.refuse(MAX_LENGTH, "the text is too long", f"at most {MAX_LENGTH} characters")
        if not self.text.strip(" \t"):
            self.refuse(0, "there is no expression", self.words.allowed)
        self.scan()
        tree = self.tree()
        self.measure(tree)
        return self.build(tree)

    def refuse(self, where: int | ast.AST, problem: str, allowed: str) -> NoReturn:
        """Raise the one error of the language."""
        column = where if isinstance(where, int) else self.start + int(getattr(where, "col_offset", 0))
        raise LanguageError(self.argument, self.text, column, problem, allowed)

    def scan(self) -> None:
        """Refuse characters, words and brackets that no expression has, before Python's parser sees them."""
        opened: list[int] = []
        for token in _TOKEN.finditer(self.text):
            word, column = token.group(), token.start()
            match token.lastgroup:
                case "number":
                    self.scan_number(column, word)
                case "name":
                    self.scan_name(column, word)
                case "bracket":
                    self.scan_bracket(column, word, opened)
                case "malformed":
                    self.refuse(column, f"{word!r} is not a number", f"{_NUMBERS}, with * before a name")
                case "other":
                    hint = _HINTS.get(word, self.words.allowed)
                    self.refuse(column, f"{word!r} is not in the language", hint)
        if opened:
            self.refuse(opened[-1], "this bracket is never closed", "brackets in pairs")

    def scan_bracket(self, column: int, word: str, opened: list[int]) -> None:
        """Keep the columns of the open brackets."""
        if word == "(":
            opened.append(column)
        elif not opened:
            self.refuse(column, "this bracket was never opened", "brackets in pairs")
        else:
            opened.pop()
        if len(opened) > MAX_DEPTH:
            self.refuse(column, "brackets are nested too deeply", f"at most {MAX_DEPTH} levels")

    def scan_number(self, column: int, word: str) -> None:
        """Bound a literal before it is converted."""
        mantissa, _, exponent = word.lower().partition("e")
        if len(mantissa.replace(".", "")) > MAX_DIGITS or abs(int(exponent or 0)) > MAX_DECADES:
            self.refuse(column, "the number has too many digits", _NUMBERS)

    def scan_name(self, column: int, word: str) -> None:
        """Refuse words that can be neither a name nor a function of the language."""
        if keyword.iskeyword(word):
            self.refuse(column, f"{word!r} is a keyword of Python", self.words.names)
        if word not in self.words.constants and (word in RESERVED or _TAKEN_SHAPES.fullmatch(word)):
            self.refuse(column, f"the name {word!r} is taken", _INSTEAD.get(word, "") + self.words.names)
        if len(word) > MAX_NAME or word.startswith("_") or "__" in word:
            self.refuse(column, f"{word[:MAX_NAME]!r} cannot be a name", self.words.names)

    def tree(self) -> ast.expr:
        """The syntax tree of the scanned text."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text[self.start :], mode="eval").body
        except SyntaxError as fault:
            column = min(self.start + max((fault.offset or 1) - 1, 0), len(self.text))
            problem = f"this is not an expression ({fault.msg})"
        except (MemoryError, RecursionError, ValueError):
            column, problem = self.start, "the expression is nested too deeply"
        self.refuse(column, problem, self.words.allowed)

    def measure(self, tree: ast.expr) -> None:
        """Bound the tree before anything recurses over it; a chain a + b + c or a*b*c is one level."""
        pending, seen = [(tree, 1, 0)], 0
        while pending:
            node, depth, sums = pending.pop()
            seen += 1
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("sum", "mean"):
                sums += 1
            if depth > MAX_TREE:
                self.refuse(node, "the expression is nested too deeply", f"at most {MAX_TREE} levels")
            if sums > MAX_SUMS:
                self.refuse(node, "sums over tokens are nested too deeply", f"at most {MAX_SUMS} levels")
            if seen > MAX_NODES:
                self.refuse(node, "the expression is too large", f"{MAX_NODES} names, numbers and operations")
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    pending.append((child, depth + (not _is_chain(node, child)), sums))

    def build(self, node: ast.expr) -> sp.Expr:
        """The expression of one node, refused where it is built if it is not sound."""
        try:
            expr = self.construct(node)
            self.check(node, expr)
        except LanguageError:
            raise
        except (_Exhausted, Exception):  # SymPy's constructors may raise anything on odd arguments
            self.refuse(node, *_INTRICATE)
        return expr

    def construct(self, node: ast.expr) -> sp.Expr:
        """Dispatch over the white list of node types."""
        match node:
            case ast.Constant():
                return sp.Rational(self.text[self.start + node.col_offset :][: _width(node)])
            case ast.Name():
                return self.name(node)
            case ast.Call():
                return self.call(node)
            case ast.UnaryOp(op=ast.UAdd()):
                return self.build(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return -self.build(node.operand)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return sp.Add(*[self.operand(op, right) for op, right in _chain(node)])
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return sp.Mul(*[self.operand(op, right) for op, right in _chain(node)])
            case ast.BinOp(op=ast.Pow()):
                return self.power(node)
        self.refuse(node, f"{type(node).__name__.lower()} is not in the language", self.words.allowed)

    def name(self, node: ast.Name) -> sp.Expr:
        """A constant, or a parameter."""
        if node.id in self.words.functions:
            self.refuse(node, f"{node.id!r} is a function without its argument", f"{node.id}(...)")
        known = self.words.constants.get(node.id)
        if known is None and self.words.closed:
            self.refuse(node, f"{node.id!r} means nothing here", self.words.allowed)
        return sp.Symbol(node.id, real=True) if known is None else known

    def operand(self, op: ast.operator, node: ast.expr) -> sp.Expr:
        """What an operand of a chain adds, or multiplies by."""
        expr = self.build(node)
        if isinstance(op, ast.Sub):
            return -expr
        if not isinstance(op, ast.Div):
            return expr
        if expr == 0:
            self.refuse(node, "this divides by zero", "a divisor other than zero")
        return 1 / expr

    def call(self, node: ast.Call) -> sp.Expr:
        """A function at its argument."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in self.words.functions:
            problem = f"unknown function {name!r}" if name else "this is not a function"
            self.refuse(node, problem, instead_of(name) + self.words.calls)
        odd = [*node.keywords, *node.args[1:], *(a for a in node.args[:1] if isinstance(a, ast.Starred))]
        if odd or not node.args:
            self.refuse(odd[0] if odd else node, f"{name} takes one argument", f"{name}(...)")
        arg = self.build(node.args[0])
        if arg.is_number and name in _BOUNDED and abs(self.value(node.args[0], arg)) > MAX_ARGUMENT:
            self.refuse(node.args[0], f"{name} of so large a constant", _ARGUMENTS)
        if name == "log" and arg.is_nonpositive:
            self.refuse(node, "this logarithm is never real", _REAL)
        if name == "sqrt":
            self.check_base(node, arg, sp.S.Half)
        if name in BY_NAME and BY_NAME[name].exponential:
            self.check_exponential(node, arg)
        return self.words.functions[name](arg)

    def power(self, node: ast.BinOp) -> sp.Expr:
        """base ** exponent."""
        base, exponent = self.build(node.left), self.build(node.right)
        if exponent.is_number and abs(self.value(node.right, exponent)) > MAX_POWER:
            self.refuse(node.right, "the exponent is too large", _POWERS)
        if base == 0 and not exponent.is_positive:
            self.refuse(node, "this is a power of zero that may divide by zero", "positive powers of zero")
        self.check_base(node, base, exponent)
        return sp.Pow(base, exponent)

    def check_base(self, node: ast.expr, base: sp.Expr, exponent: sp.Expr) -> None:
        """Refuse a power that is not real, or whose evaluation is not bounded."""
        if base.is_negative and not exponent.is_integer:
            self.refuse(node, "a negative number has no real power of this kind", _REAL)
        if base.has(X) and exponent.has(X) and not base.is_nonnegative:
            self.refuse(node, "an exponent with x in it needs a positive base", "abs(...)**x or exp(...)**x")
        self.check_power(node, base, exponent)

    def check_power(self, node: ast.expr, base: sp.Expr, exponent: sp.Expr) -> None:
        """Bound the exponents that SymPy would give to the factors of the base."""
        for factor in sp.Mul.make_args(base):
            if isinstance(factor, sp.exp) or factor is sp.E:
                self.check_exponential(node, factor.as_base_exp()[1] * exponent)
            elif factor.is_Pow:
                self.check_power(node, factor.base, factor.exp * exponent)
            else:
                self.check_exponent(node, exponent, bool(factor.is_Rational and abs(factor) != 1))

    def check_exponent(self, node: ast.expr, exponent: sp.Expr, of_number: bool) -> None:
        """Bound the numbers that cancellation could leave alone in an exponent: (2**(c*x))**(1/x) is 2**c."""
        for term in sp.Add.make_args(exponent):
            number, rest = term.as_coeff_Mul()
            if abs(number) > MAX_POWER:
                self.refuse(node, "the exponent is too large", _POWERS)
            if of_number and rest == 1 and ROOTS % number.q:
                self.refuse(node, "this root of a number is too fine", _ROOTS)

    def check_exponential(self, node: ast.expr, arg: sp.Expr) -> None:
        """Bound exp(c*log(a)) as the power a**c that SymPy makes of it."""
        for term in sp.Add.make_args(arg):
            factors = sp.Mul.make_args(term)
            for factor in factors:
                if isinstance(factor, sp.log):
                    self.check_power(node, factor.args[0], sp.Mul(*[f for f in factors if f is not factor]))

    def check(self, node: ast.expr, expr: sp.Expr) -> None:
        """Refuse parts of a built expression that are not finite, real and bounded."""
        if expr in self.sound:
            return
        if expr.is_Rational:
            if max(abs(expr.p), expr.q) > LARGEST:
                self.refuse(node, "a number is too large, too small or too long", _SIZES)
        elif expr.is_number:
            self.value(node, expr)
        if expr.is_Pow:
            self.check_power(node, expr.base, expr.exp)
        if isinstance(expr, _EXPONENTIAL):
            self.check_exponential(node, expr.args[0])
        if _exponentials(expr) > MAX_EXPONENTIALS:
            allowed = f"at most {MAX_EXPONENTIALS} levels of {_GROWING}, or of powers with names in the exponent"
            self.refuse(node, "exponentials are nested too deeply", allowed)
        for part in expr.args:
            self.check(node, part)
        self.sound.add(expr)

    def value(self, node: ast.expr, number: sp.Expr) -> sp.Expr:
        """The value of an expression without names, which must be real and of moderate size."""
        value = number if number.is_Rational else number.evalf(15, maxn=50)
        if number.has(sp.zoo, sp.nan, sp.oo, -sp.oo) or not value.is_number or value.is_finite is False:
            self.refuse(node, "this is infinite or undefined", "expressions with a finite value")
        if not value.is_Number:
            self.refuse(node, "this is not a real number", _REAL)
        if value != 0 and not sp.Rational(1, LARGEST) <= abs(value) <= LARGEST:
            self.refuse(node, "a number is too large or too small", _SIZES)
        if value.is_Float and value._prec == 1:
            self.refuse(node, "this number cannot be told from zero", "numbers without complete cancellation")
        return value


def _exponentials(expr: sp.Expr) -> int:
    """How deeply exponentials of names are nested."""
    if not expr.args or not expr.free_symbols:
        return 0
    if isinstance(expr, _EXPLOSIVE):
        return 1 + _exponentials(expr.args[0])
    if expr.is_Pow and expr.exp.free_symbols:
        return max(_exponentials(expr.base), 1 + _exponentials(expr.exp))
    return max(_exponentials(a) for a in expr.args)


def _width(node: ast.expr) -> int:
    """The number of characters of a node on one line."""
    return (node.end_col_offset or 0) - node.col_offset


def _family(node: ast.AST) -> str:
    """The kind of chain that an operation continues, if any."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return "sum"
    return "product" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div) else ""


def _is_chain(node: ast.AST, child: ast.AST) -> bool:
    """Whether `child` continues to the left the chain a + b + c that ends in `node`."""
    return isinstance(node, ast.BinOp) and child is node.left and _family(node) == _family(child) != ""


def _chain(node: ast.BinOp) -> list[tuple[ast.operator, ast.expr]]:
    """The operands of a chain with the operators before them."""
    links: list[tuple[ast.operator, ast.expr]] = [(node.op, node.right)]
    while isinstance(node.left, ast.BinOp) and _is_chain(node, node.left):
        node = node.left
        links.append((node.op, node.right))
    return [(ast.Add() if _family(node) == "sum" else ast.Mult(), node.left), *reversed(links)]
