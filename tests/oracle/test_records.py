"""Every claim of every record of theory.language.functions, at 30 digits: a new record needs no new test."""

import ctypes
import random
import shutil
from importlib.resources import files
from itertools import product

import mpmath
import numpy as np
import pytest
import sympy as sp
from mpmath import mpf
from scipy import special
from sympy.parsing.sympy_parser import parse_expr

from replicode.codegen.compiled.fast import compiled
from replicode.codegen.emit.printer import numpy_source
from replicode.codegen.interpret.oracle import _value
from replicode.codegen.precise.kernel import decimal_numbers, double_arrays
from replicode.theory.calculus.numeric import Program, Undefined
from replicode.theory.errors import LanguageError
from replicode.theory.language import parse, unparse
from replicode.theory.language.functions import BY_NAME, BY_NODE, RECORDS, branch
from replicode.theory.language.nodes import X, erfc_mantissa, ierfcx, softplus_mantissa
from replicode.theory.typeset.notation import builtin, latex, text

DIGITS = 30
CLOSE = mpf(10) ** -27
FAR = mpf(10) ** 6
NEVER_DIFFERENTIATED = (softplus_mantissa, erfc_mantissa)
ORDERS = {ierfcx: ((0,), (2,)), erfc_mantissa: ((0,), (2,))}
POINTS = [mpf(s) / 64 for s in random.Random(3).sample(range(-400, 400), 12) if s]
CASES = [(f, order) for f in RECORDS for order in ORDERS.get(f.node, ((),))]


def label(value):
    return (value.name or f"{value.node.__name__} node") if hasattr(value, "ends") else "".join(map(str, value))


every_case = pytest.mark.parametrize(("record", "order"), CASES, ids=label)
every_record = pytest.mark.parametrize("record", RECORDS, ids=label)


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(DIGITS):
        yield


def points(record):
    return [u for u in POINTS if sp.Rational(str(u)) in record.domain]


def values(record, *order):
    """(u, f(u)) at the points."""
    function = record.evaluator()
    return [(u, function(u, *order)) for u in points(record)]


def at(expr, u):
    """The value of an expression in X; what lives on a kink only is dropped."""
    return _value(sp.sympify(expr).replace(sp.DiracDelta, lambda *_: sp.S.Zero), {X: u})


def same(found, expected, close=CLOSE):
    return abs(found - expected) <= close * (1 + abs(expected))


def is_value_of(record, expr, *order):
    return all(same(at(expr, u), value) for u, value in values(record, *order))


@every_case
def test_derivatives(record, order):
    """Of first and second order, from outside the family: mpmath differentiates the value."""
    expr, function = record.build(X, *order), record.evaluator()
    for times in (1, 2):
        expr = sp.diff(expr, X)
        if record.node in NEVER_DIFFERENTIATED:
            assert expr.has(sp.Derivative)
            return
        for u in points(record):
            with mpmath.workdps(2 * DIGITS):
                expected = mpmath.diff(lambda v: function(v, *order), u, times)
            assert same(at(expr, u), expected, mpf(10) ** -22), u


@every_case
def test_rewritings_are_equal(record, order):
    u = (X, *order)
    for form in (record.built, record.builtin, record.elementary, record.averaged, record.stable):
        if form is not None:
            rewritten = form(*u).replace(sp.Heaviside, lambda v, *_: (1 + sp.sign(v)) / 2)
            assert is_value_of(record, rewritten, *order)
    if record.reflected is not None:
        mirrored = record.reflected(X, record.build(X))
        assert all(same(at(mirrored, v), record.evaluator()(-v)) for v in points(record))
    for added, node in record.complements(X) if record.complements else ():
        assert is_value_of(record, node - added)
    assert record.builtin is not None or not record.own or record.node in NEVER_DIFFERENTIATED


@pytest.mark.parametrize(("record", "order"), [c for c in CASES if c[0].log_scale], ids=label)
def test_log_scale(record, order):
    scale, mantissa = record.log_scale(X, *order)
    assert is_value_of(record, sp.exp(scale) * mantissa, *order)
    for u in (mpf(-1000), mpf(1000)):
        assert same(at(scale, u) + mpmath.log(abs(at(mantissa, u))), mpmath.log(abs(record.evaluator()(u, *order))))
        assert mpf(10) ** -12 < abs(at(mantissa, u)) < mpf(10) ** 12


@every_record
def test_kinks_and_degree(record):
    function, expr = record.evaluator(), record.build(X) if record.node not in ORDERS else None
    if record.kink is not None:
        assert all(same(at(branch(expr, 1 if u > 0 else -1), u), value) for u, value in values(record))
        assert record.jumps == (abs(function(CLOSE) - function(-CLOSE)) > mpf("0.1"))
    if record.degree is not None:
        assert all(same(function(3 * u), mpf(3) ** mpf(str(record.degree.evalf())) * v) for u, v in values(record))


@every_record
def test_domain(record):
    """Real and finite inside; refused by the program of theory.numeric outside."""
    for u, value in values(record, *ORDERS.get(record.node, ((),))[0]):
        assert isinstance(value, mpf) and mpmath.isfinite(value), u
    outside = [u for u in POINTS if u not in points(record)]
    assert bool(outside) == (record.domain != sp.S.Reals)
    for u in outside:
        with pytest.raises(Undefined):
            Program(record.build(X))([u])


@every_record
def test_growth_and_bounds(record):
    """`ends` where f is far out, through theory.numeric also where mpmath is not asked; `bounds` on the whole line."""
    function = record.evaluator()
    order = ORDERS.get(record.node, ((),))[0]
    seen = [value for _, value in values(record, *order)]
    seen += [function(u, *order) for u in (mpf(0), mpf(10) ** -30) if sp.Rational(str(u)) in record.domain]
    for side, end in zip((-1, 1), record.ends):
        if end is None:
            assert record.bounded or side < 0
            continue
        value = function(side * FAR, *order)
        seen.append(value)
        assert abs(value / at(end, side * FAR) - 1 if at(end, side * FAR) else value) < mpf(10) ** -5
        if not order:
            beyond = side * mpf(10) ** 31
            assert same(Program(record.build(X))([beyond])[0] / (at(end, beyond) or 1), 1 if at(end, beyond) else 0)
    low, high = (
        b._to_mpmath(mpmath.mp.prec) if b.is_finite else mpf(str(b).replace("oo", "inf")) for b in record.bounds
    )
    assert low <= min(seen) + CLOSE and max(seen) - CLOSE <= high
    if not order and None not in record.ends:
        assert min(seen) - low < mpf("0.01") or (low == -mpmath.inf and min(seen) < -10)
        assert high - max(seen) < mpf("0.01") or (high == mpmath.inf and max(seen) > 10)
    assert record.explosive == any(abs(v) > mpf(10) ** 1000 for v in seen)


@pytest.mark.parametrize("record", [f for f in RECORDS if f.saturation], ids=label)
def test_saturation(record):
    """Beyond exp(saturation) the double does not change by anything that counts."""
    order = ORDERS.get(record.node, ((),))[0]
    function = double_arrays().functions[record.node.__name__]
    for sign in (-1.0, 1.0):
        with np.errstate(over="ignore", under="ignore"):
            near, far = (function(np.array([sign * np.exp(float(s))]), *order) for s in (record.saturation, 709))
        assert near == far or abs(near - far) < 1e-100


@every_case
def test_numpy_and_decimals(record, order):
    name = record.node.__name__ if record.node else record.name
    doubles, decimals = double_arrays(), decimal_numbers()
    for u, expected in values(record, *order):
        assert same(mpf(float(doubles.functions[name](np.float64(u), *order))), expected, mpf("4e-14"))
        printed = eval(numpy_source(record.build(X, *order)), {"np": np, "special": special}, {"x": np.float64(u)})
        assert same(mpf(float(printed)), expected, mpf("4e-14"))
    with decimals.working(DIGITS):
        for u in points(record):
            found = decimals.read(decimals.functions[name](decimals.real(u), *order))
            assert same(found, record.evaluator()(u, *order)), u


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
def test_c(tmp_path):
    """All compiled forms, in one library with the helpers of fast.c."""
    written = [f for f in RECORDS if f.c is not None]
    runtime = files("replicode.codegen.runtime").joinpath("fast.c").read_text(encoding="utf-8")
    helpers = runtime.partition("/* kernels */")[0]
    functions = [f"double f{i}(double u) {{ return {f.c.format('u')}; }}" for i, f in enumerate(written)]
    library = tmp_path / "functions.so"
    library.write_bytes(compiled("\n".join(["#define TOKENS 2", "#define FIRST 0", helpers, *functions])))
    loaded = ctypes.CDLL(str(library))
    for i, record in enumerate(written):
        function = getattr(loaded, f"f{i}")
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        for u, expected in values(record):
            assert same(mpf(function(float(u))), expected, mpf("4e-14")), (label(record), u)


@pytest.mark.parametrize(("record", "order"), [c for c in CASES if c[0].node not in NEVER_DIFFERENTIATED], ids=label)
def test_text_and_latex(record, order):
    """Text that SymPy alone reads to the same value; LaTeX that names the function or writes it out."""
    expr = record.build(X, *order)
    read = parse_expr(text(builtin(expr)))
    for u, expected in values(record, *order):
        found = read.subs(sp.Symbol("x"), sp.Rational(str(u))).evalf(DIGITS + 5)
        assert same(mpf(str(found)), expected)
    assert latex(expr).count("{") == latex(expr).count("}")


@pytest.mark.parametrize("name", BY_NAME)
def test_typed(name):
    """Read, written and read again; derivatives stay within the family."""
    expr = parse(f"{name}(x)")
    assert unparse(expr) == f"{name}(x)" and parse(unparse(expr)) == expr
    assert is_value_of(BY_NAME[name], expr)
    for part in sp.preorder_traversal(sp.diff(expr, X, 2)):
        assert not part.is_Function or part.func in BY_NODE or isinstance(part, sp.DiracDelta)


@pytest.mark.parametrize(("outer", "inner"), list(product(("sinh", "cosh"), ("sinh", "exp"))))
def test_nested_exponentials_are_counted(outer, inner):
    parse(f"{outer}({inner}(x))")
    with pytest.raises(LanguageError, match="nested too deeply"):
        parse(f"{outer}({inner}(exp(x)))")
