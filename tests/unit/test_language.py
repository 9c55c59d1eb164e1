"""The expression language: what is accepted and as what, what is refused and where the caret points."""

import ast
import builtins
import contextlib
import os
import subprocess
import sys
import threading
import time

import pytest
import sympy as sp
from click.testing import CliRunner

from replicode.cli import main
from replicode.codegen.emit.numpy import kernel_function
from replicode.codegen.lower import sigma_kernel, stable_form
from replicode.theory.calculus.tokens import Definition, OuterProducts
from replicode.theory.derive.channel import eliminate_values
from replicode.theory.derive.saddle import loss_derivatives
from replicode.theory.errors import InputError, LanguageError
from replicode.theory.language import ALLOWED, FUNCTIONS, RESERVED, parse, reader, unparse
from replicode.theory.language.activation import activation
from replicode.theory.language.nodes import L, TokenSum, X, relu, sigmoid, softplus, step
from replicode.theory.model import Model
from replicode.theory.properties.domain import check_domain

VALUES = eliminate_values(Model())
C = sp.Symbol("c", real=True)
NU = sp.Symbol("nu", nonnegative=True)
R = sp.Rational

ACCEPTED = {
    "x": X,
    "  x\t": X,
    "L": L,
    "pi": sp.pi,
    "nu": NU,
    "c": C,
    "match": sp.Symbol("match", real=True),
    "0.5": R(1, 2),
    ".5": R(1, 2),
    "1.": sp.Integer(1),
    "1e-3": R(1, 1000),
    "0.1": R(1, 10),
    "1e300": sp.Integer(10) ** 300,
    "-x**2": -(X**2),
    "+x": X,
    "2**-1": R(1, 2),
    "x - 1 - 2": X - 3,
    "8/2/2": sp.Integer(2),
    "2**3**2": sp.Integer(512),
    "exp(x)/sum(exp(x))": sp.exp(X) / TokenSum(sp.exp(X)),
    "1 + erf(c + x)": 1 + sp.erf(C + X),
    "relu(x)/L": relu(X) / L,
    "sqrt(nu)*x - nu/2": sp.sqrt(NU) * X - NU / 2,
    "mean(x**2)": TokenSum(X**2) / L,
    "sum(2*x + 1)": 2 * TokenSum(X) + L,
    "sum(exp(x - sum(x*exp(sum(x)))))": TokenSum(sp.exp(X - TokenSum(X) * sp.exp(TokenSum(X)))),
    "sigmoid(x)*softplus(x)": sigmoid(X) * softplus(X),
    "tanh(x) + cos(x) + sin(x)": sp.tanh(X) + sp.cos(X) + sp.sin(X),
    "log(1 + abs(x))": sp.log(1 + sp.Abs(X)),
    "erfc(-x)": sp.erfc(-X, evaluate=False),
    "(x + 1)**64": (X + 1) ** 64,
    "2**x": 2**X,
    "exp(x)**x": sp.exp(X**2),
    "abs(x)**c": sp.Abs(X) ** C,
    "exp(1)": sp.E,
    "(-1)**L": (-1) ** L,
    "tanh(x/sqrt(mean(x**2)))": sp.tanh(X / sp.sqrt(TokenSum(X**2) / L)),
    "-" * 30 + "x": X,
    "+".join(["x"] * 200): 200 * X,
}

REFUSED = [
    ("", 0, "no expression"),
    (" \t ", 0, "no expression"),
    ("x\0", 1, "not in the language"),
    ("x\n+1", 1, "not in the language"),
    ("x + \N{CYRILLIC SMALL LETTER HA}", 4, "not in the language"),
    ("\N{FULLWIDTH LATIN SMALL LETTER X}", 0, "not in the language"),
    ("1 + \N{MATHEMATICAL ITALIC SMALL X}", 4, "not in the language"),
    ("x\N{SUPERSCRIPT TWO}", 1, "not in the language"),
    ("\N{ARABIC-INDIC DIGIT ONE}", 0, "not in the language"),
    ("x\N{NO-BREAK SPACE}+ 1", 1, "not in the language"),
    ("__import__('os').system('x')", 0, "cannot be a name"),
    ("x + exp.__class__", 7, "not in the language"),
    ("x.real", 1, "not in the language"),
    ("x[0]", 1, "not in the language"),
    ("(lambda: x)()", 1, "keyword"),
    ("[x for x in x]", 0, "not in the language"),
    ("sum(x for x in x)", 6, "keyword"),
    ("f'{x}'", 1, "not in the language"),
    ("'x'", 0, "not in the language"),
    ("(c := 1)", 3, "not in the language"),
    ("exp(*x)", 4, "one argument"),
    ("exp(**x)", 4, "one argument"),
    ("exp(x=1)", 5, "not in the language"),
    ("exp(x, 1)", 7, "one argument"),
    ("exp()", 0, "one argument"),
    ("1 < x < 2", 2, "not in the language"),
    ("x if c else 1", 2, "keyword"),
    ("x and c", 2, "keyword"),
    ("True", 0, "keyword"),
    ("x // 2", 2, "not in the language"),
    ("x % 2", 2, "not in the language"),
    ("x ^ 2", 2, "not in the language"),
    ("x; c", 1, "not in the language"),
    ("x # c", 2, "not in the language"),
    ("x, c", 0, "tuple"),
    ("c + ()", 4, "tuple"),
    ("1 + ln(x)", 4, "unknown function 'ln'"),
    ("x(2)", 0, "unknown function 'x'"),
    ("2(x)", 0, "not a function"),
    ("1 + exp", 4, "without its argument"),
    ("2x", 0, "not a number"),
    ("1_000", 0, "not a number"),
    ("0x10", 0, "not a number"),
    ("1j", 0, "not a number"),
    ("1.2.3", 0, "not a number"),
    ("1e", 0, "not a number"),
    ("x + 1e301", 4, "too many digits"),
    ("1e-301", 0, "too many digits"),
    ("1" * 31, 0, "too many digits"),
    ("99e299", 0, "too large"),
    ("x)", 1, "never opened"),
    ("exp(x", 3, "never closed"),
    ("a" * 33, 0, "cannot be a name"),
    ("a__b", 0, "cannot be a name"),
    ("_a", 0, "cannot be a name"),
    ("9**9**9**9", 6, "exponent is too large"),
    ("x**65", 3, "exponent is too large"),
    ("x**-65", 3, "exponent is too large"),
    ("x**64*x", 0, "exponent is too large"),
    ("x**exp(5)", 3, "exponent is too large"),
    ("(2**64)**64", 0, "too large"),
    ("(2**64*x)**64", 0, "too large"),
    ("((1 + 1e-30)**64)**64", 1, "too long"),
    ("exp(1e20*log(2))", 4, "exp of so large"),
    ("exp(1e5*log(2))", 0, "exponent is too large"),
    ("exp(x + 1e20*log(2))", 0, "exponent is too large"),
    ("softplus(1e5*log(2))", 0, "exponent is too large"),
    ("(2**(1e20*x))**(1/x)", 1, "exponent is too large"),
    ("(2**(60*x))**(60/x)", 0, "exponent is too large"),
    ("exp(1e20*x)**(log(2)/x)", 0, "exponent is too large"),
    ("2**(x + 1e20)/2**x", 0, "exponent is too large"),
    ("12**0.7777777", 0, "too fine"),
    ("exp(exp(exp(100)))", 8, "exp of so large"),
    ("exp(1000)", 0, "too large"),
    ("exp(600)*exp(600)", 0, "too large"),
    ("erfc(1e300)", 5, "erfc of so large"),
    ("sum(sum(sum(sum(x))))", 12, "sums over tokens"),
    ("1 + exp(exp(exp(x)))", 4, "exponentials are nested too deeply"),
    ("2**2**2**x", 0, "exponentials are nested too deeply"),
    ("x + inf", 4, "taken"),
    ("nan*x", 0, "taken"),
    ("x - oo", 4, "taken"),
    ("1e999", 0, "too many digits"),
    ("1e-999", 0, "too many digits"),
    ("10**10**10", 4, "exponent is too large"),
    ("((((x**9)**9)**9)**9)**9", 3, "exponent is too large"),
    ("1/0", 2, "divides by zero"),
    ("x/(1 - 1)", 3, "divides by zero"),
    ("1 + x/0.0", 6, "divides by zero"),
    ("0**-1", 0, "power of zero"),
    ("0**x", 0, "power of zero"),
    ("1/relu(-1)", 0, "infinite or undefined"),
    ("1 + log(0)", 4, "never real"),
    ("log(-1)", 0, "never real"),
    ("sqrt(-1)", 0, "no real power"),
    ("1 + (-8)**(1/3)", 4, "no real power"),
    ("sqrt(-exp(x))", 0, "no real power"),
    ("sqrt(-x**2)", 0, "not a real number"),
    ("(-2)**x", 0, "no real power"),
    ("x**x", 0, "positive base"),
    ("(1 + sqrt(2))**2 - 3 - 2*sqrt(2)", 0, "told from zero"),
    ("(" * 10000 + "x" + ")" * 10000, 2000, "too long"),
    ("-" * 10000 + "x", 2000, "too long"),
    ("(" * 900 + "x" + ")" * 900, 20, "nested too deeply"),
    ("-" * 1900 + "x", 60, "nested too deeply"),
    ("+".join(["x*c"] * 400), 0, "too large"),
]

HANGS = [
    "log(abs(" * 9 + "3" + "-1))" * 9,
    "2**(" * 18 + "c" + ")" * 18,
    "(tanh(" * 9 + "x" + ")**0.5 + x)" * 9,
    "abs(tanh((x + c + a + b + log(d))**64))",
    "abs(tanh((sqrt(c)/(64 + x))**0.777777777777 + x))",
    "exp(" * 20 + "x" + ")" * 20,
    "sqrt(2 + " * 20 + "3" + ")" * 20,
    "*".join(["(1e299 + 1)**(x + 64)"] * 60),
]


def _refusal(text):
    with pytest.raises(LanguageError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text):
    assert parse(text) == ACCEPTED[text]


@pytest.mark.parametrize("text", ACCEPTED)
def test_unparse_is_the_inverse(text):
    assert parse(unparse(parse(text))) == parse(text)


@pytest.mark.parametrize(("text", "column", "problem"), REFUSED, ids=lambda value: str(value)[:30])
def test_refused(text, column, problem):
    error = _refusal(text)
    assert problem in error.problem
    assert error.column == column
    assert error.allowed
    assert error.argument == "activation"
    assert error.value == text


@pytest.mark.parametrize("text", ["012", "x +", "x c", "*x", "x ** / c", "exp(x,,)", "+"])
def test_syntax_errors(text):
    error = _refusal(text)
    assert "not an expression" in error.problem
    assert 0 <= error.column <= len(text)


SHAPES = ("S_1", "S_12", "A_1", "B_21", "K_311", "bx_1", "aw_2", "w_chi_eps", "G_z_l", "dEM_q_k")


@pytest.mark.parametrize("name", [*sorted(RESERVED), *SHAPES])
def test_reserved_names(name):
    error = _refusal(f"1 + {name}")
    assert error.column == 4
    assert f"the name '{name}' is taken" in str(error)


@pytest.mark.parametrize("name", ["inf", "nan", "oo"])
def test_what_is_no_number_is_no_name(name):
    assert "finite numbers" in _refusal(name).allowed


INTERNAL = (
    "A B G K M P R T V X Y Z a b d f g h i j k l n p q r s t u v chi eps gain held index order params param_c prox "
    "residual row_sum shift shift_2 sigma sigmas slope special tanh_ t_0 exp_1 term inverse_scale theta chi_star "
    "z_star value envelope np TOKENS loss gradient hessian curvatures nu_ L_ lambda_ sigma_w sigma_sigma"
)


@pytest.mark.parametrize("name", INTERNAL.split())
def test_parameters_are_kept_apart_from_internal_symbols(name):
    """Derivatives and emitted kernels of an activation are the same whatever its parameter is called."""
    text = "({0} + x)*exp({0}*x)/sum(exp({0}*x)) + {0}*mean(x*softplus(x))"
    found, expected = (_kernels(text.format(n)) for n in (name, "some"))
    assert found == expected


def _kernels(text):
    form = activation(text).token_form()
    (symbol,) = form.f.free_symbols & {sp.Symbol(n, real=True) for n in activation(text).parameters}
    staged = loss_derivatives(form, VALUES)
    outputs = (staged.value, staged.gradient_x, staged.gradient_w, staged.hessian_xx, staged.hessian_xw)
    definitions = (staged.value_definitions, staged.gradient_definitions, staged.hessian_definitions)
    neutral = sp.Symbol("neutral", real=True)
    stages = [_renamed(part, symbol, neutral) for part in (*definitions, *outputs)]
    kernel = sigma_kernel(stable_form(activation(text), 2))
    source = kernel_function(kernel, activation(text).parameters)
    return stages, source.replace(f"param_{symbol.name}", "param")


def _renamed(part, old, new):
    """All expressions in a definition, an outer product, or a sequence of them, under another parameter name."""
    if isinstance(part, sp.Expr):
        return part.xreplace({old: new})
    if isinstance(part, Definition):
        return part.symbol, part.kind, _renamed(part.expr, old, new)
    if isinstance(part, OuterProducts):
        return _renamed((part.diagonal, *part.outers), old, new)
    return [_renamed(p, old, new) for p in part]


@pytest.mark.parametrize("text", HANGS, ids=lambda value: value[:20])
def test_nothing_hangs(text):
    start = time.perf_counter()
    with contextlib.suppress(LanguageError):
        assert isinstance(parse(text), sp.Expr)
    assert time.perf_counter() - start < 20


def test_budget_is_spent_and_put_away(monkeypatch):
    monkeypatch.setattr(reader, "MAX_STEPS", 100)
    assert "too intricate" in _refusal("exp(x)/sum(exp(x))").problem
    assert sys.getprofile() is None


def test_nothing_is_executed(monkeypatch):
    def trap(*_args, **_kwargs):
        raise AssertionError("user text was executed")

    for module, name in [(os, "system"), (subprocess, "Popen"), (builtins, "eval"), (builtins, "exec")]:
        monkeypatch.setattr(module, name, trap)
    monkeypatch.setattr(sp, "sympify", trap)
    monkeypatch.setattr(sp, "parse_expr", trap)
    monkeypatch.setattr(sp, "lambdify", trap)
    for text in [
        "exp(x)/sum(exp(x))",
        "__import__('os').system('x')",
        "exp(os.system)",
        "eval(x)",
        "exec(x)",
    ]:
        try:
            parse(text)
        except LanguageError:
            continue
        assert text == "exp(x)/sum(exp(x))"


def test_argument_is_named():
    with pytest.raises(LanguageError, match=r"^task: ") as caught:
        parse("sqrt(nu) * foo(x)", "task")
    assert caught.value.column == 11
    assert "exp, log, sqrt" in caught.value.allowed


def test_caret_is_under_the_fault():
    shown, caret = str(_refusal("  1 + ln(x)")).splitlines()[1:3]
    assert shown[caret.index("^") :].startswith("ln(x)")


@pytest.mark.parametrize("text", [None, 1, 2.5, b"x", ["x"], sp.Symbol("x")])
def test_only_text(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert not isinstance(caught.value, LanguageError)


def test_parsers_own_failures(monkeypatch):
    for failure in (MemoryError, RecursionError, ValueError):
        monkeypatch.setattr(ast, "parse", lambda *_, failure=failure, **__: (_ for _ in ()).throw(failure))
        assert "nested too deeply" in _refusal("x").problem


HOSTILE = [
    "__import__('os').system('touch hacked')",
    "x.__class__.__mro__",
    "(lambda: x)()",
    "[x for x in x]",
    "f'{x}'",
    "(c := x)",
    "9**9**9**9",
    "(" * 10000 + "x" + ")" * 10000,
    "\N{CYRILLIC SMALL LETTER HA} + 1",
    "x\0",
    "x + " * 5000 + "x",
    "sum(" * 30 + "x" + ")" * 30,
    "sum(" * 400,
    "1e999*x",
    "1e-999*x",
    "10**10**10*x",
    "((((x**9)**9)**9)**9)**9",
    "exp(exp(exp(exp(x))))",
    "inf*x",
    "nan + x",
    "U*x",
    "y + x",
    "N*exp(x)",
    "S_1*x + sum(x)",
    "x if x else 1",
    "x; x",
    "x[0]",
    "-" * 1500 + "x",
    "*x",
    "",
]
SOLVE = ["solve", "x", "--tokens", "2", "--alpha", "1", "--nu", "1"]


@pytest.fixture(scope="module")
def imported():
    """The command line imports what it needs on first use."""
    for arguments in (["derive", "--", "("], [*SOLVE, "--task=("], [*SOLVE, "--param=c=1"]):
        CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda value: value[:20])
def test_hostile_text_on_the_command_line(text, imported, monkeypatch):
    monkeypatch.setattr(os, "system", lambda *_: pytest.fail("user text was executed"))
    for arguments in (["derive", "--", text], [*SOLVE, f"--task={text}"], [*SOLVE, f"--param={text}=1"]):
        start = time.process_time()
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
        assert "Traceback" not in done.output
        assert time.process_time() - start < 1


def test_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(parse("1 + erf(c + x)")))
    thread.start()
    thread.join()
    assert found == [1 + sp.erf(C + X)]


def test_not_expanded():
    assert parse("(x + 1)**64*(x - c)**64").count_ops() < 10


def test_white_list():
    names = "exp log sqrt erf erfc tanh sigmoid softplus relu abs cos sin sinh cosh atan sum mean"
    assert " ".join(FUNCTIONS) == names
    assert all(name in ALLOWED for name in FUNCTIONS)
    with pytest.raises(TypeError):
        FUNCTIONS["eval"] = eval


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x/3", "(1/3)*x"),
        ("exp(x)/sum(exp(x))", "exp(x)/sum(exp(x))"),
        ("abs(x)/sqrt(L)", "abs(x)/sqrt(L)"),
        ("mean(x)", "sum(x)/L"),
        ("1e40*x", "1e40*x"),
        ("-(x + c)", "-c - x"),
        ("exp(1)", "exp(1)"),
    ],
)
def test_written(text, written):
    assert unparse(parse(text)) == written


@pytest.mark.parametrize("text", ["(2**64)**4 + 1", "-(3**64)**9", "1/((2**64)**4 + 1)", "1e-300", "-7e250 + 1"])
def test_long_integers_are_written_in_blocks(text):
    assert parse(unparse(parse(text))) == parse(text)


def test_unparse_refuses_what_parse_does_not_build():
    with pytest.raises(InputError, match="gamma"):
        unparse(1 + sp.gamma(X))


def test_relu_and_step():
    assert sp.diff(relu(2 * X), X) == 2 * step(2 * X)
    assert sp.diff(step(X), X) == 0
    for value in (R(3, 2), sp.sqrt(2), -R(1, 3), sp.Integer(0)):
        assert float(relu(value)) == max(float(value), 0)
        assert float(step(value)) == (1 if value > 0 else 0)
    assert relu(sp.sqrt(2)).evalf(40) == sp.sqrt(2).evalf(40)
    assert float(relu(X).subs(X, 2)) == 2
    assert relu(X).evalf() == relu(X)
    assert relu(X).is_nonnegative and step(X).is_nonnegative


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("sofmax", "did you mean softmax?"),
        ("Softmax", "did you mean softmax?"),
        ("softmax(x)", "softmax alone, without an argument, which is exp(x)/sum(exp(x))"),
        ("max(x, 0)", "relu(x) for the larger of x and 0"),
        ("1 + tnh(x)", "tanh, if that is meant"),
        ("gelu(x)", "x*(1 + erf(x/sqrt(2)))/2, if that is meant"),
    ],
)
def test_a_refusal_says_what_may_have_been_meant(text, meant):
    with pytest.raises(InputError) as refused:
        activation(text)
    assert meant in str(refused.value)


def test_what_is_offered_for_functions_known_elsewhere_is_accepted():
    for offered in reader._ELSEWHERE.values():
        activation(offered.split(" for ")[0])


def test_a_divisor_that_vanishes_is_refused_with_a_change_that_is_accepted():
    with pytest.raises(InputError) as refused:
        check_domain(activation("relu(x)**2/sum(relu(x)**2)"))
    check_domain(activation(str(refused.value).split("accepted would be ")[1]))
    with pytest.raises(InputError) as refused:
        check_domain(activation("exp(x**2)"))
    assert "accepted would be" not in str(refused.value)
