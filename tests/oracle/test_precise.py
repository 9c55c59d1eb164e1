"""Many digits: the programs against the oracle, ridge regression in closed form, softmax against double precision."""

from __future__ import annotations

import json
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from click.testing import CliRunner
from mpmath import mpf

import replicode as rc
from replicode.cli import main
from replicode.codegen.interpret.oracle import evaluate
from replicode.codegen.ir import Kernel
from replicode.codegen.lower import lower, parameter_symbol
from replicode.codegen.precise.arb import arb_numbers, best_numbers
from replicode.codegen.precise.integral import Grid, Physics, PreciseSystem
from replicode.codegen.precise.kernel import Outers, Program, decimal_numbers, double_arrays, mpmath_numbers
from replicode.codegen.precise.saddle import check_dimension
from replicode.codegen.precise.scout import Scout
from replicode.modules import module_for
from replicode.theory.derive.saddle import derive
from replicode.theory.errors import InputError, Refusal
from replicode.verbs.precise import as_texts

POINT = {"alpha": 4, "nu": 2, "noise": 0.3, "lambda_k": 8, "lambda_v": 0.5}
TEST_RISK = "0.6437186769335221742544359062170798383352"
NUMBERS = {"arb": arb_numbers, "decimal": decimal_numbers, "mpmath": mpmath_numbers, "double": double_arrays}
AWAY = ["0.4", "0.5", "0.2", "0.7", "0.8", "0.5"]


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPLICODE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def sixteen():
    return rc.solve("softmax", tokens=2, digits=16, **POINT)


def reals(*texts: str) -> list[mpf]:
    return [mpf(t) for t in texts]


def physics(parameters=None, **changed) -> Physics:
    values = {name: mpf(str(v)) for name, v in (POINT | changed).items()}
    return Physics(**values, parameters=parameters or {})


@pytest.mark.parametrize("kind", NUMBERS)
def test_functions_agree_with_mpmath(kind):
    numbers, reference = NUMBERS[kind](), mpmath_numbers().functions
    assert set(numbers.functions) == set(reference)
    with numbers.working(40):
        close = mpf("1e-13") if kind == "double" else mpf("1e-37")
        for name in sorted(set(reference) - {"pi"}):
            for text in ("0.3", "2.5", "7.25", "-1.75", "-12.5"):
                if text[0] == "-" and name in ("log", "sqrt", "log1p"):
                    continue
                more = {"ierfcx": [2], "erfc_mantissa": [2]}.get(name, [])
                more = [numbers.real(mpf(1))] if name in ("Max", "Min") else more
                found = mpf(numbers.read(numbers.functions[name](numbers.real(mpf(text)), *more)))
                expected = reference[name](mpf(text), *(mpf(1) if name in ("Max", "Min") else m for m in more))
                assert abs(found - expected) <= close * (1 + abs(expected)), (name, text)


def test_small_arguments_keep_their_digits():
    numbers = decimal_numbers()
    with numbers.working(30):
        found = numbers.read(numbers.functions["softplus_mantissa"](numbers.real(mpf(-60))))
        assert abs(found - 1 + mpmath.exp(-60) / 2) < mpf("1e-29")


def contracted(value, left, right):
    if isinstance(value, mpmath.matrix):
        return [(mpmath.matrix([left]) * value * mpmath.matrix(right))[0]]
    return list(value) if isinstance(value, list) else [value]


def program_of(kernel: Kernel, parameters, count, numbers):
    """The flattened outputs of a kernel as one function of all its inputs; matrices between two vectors."""
    tokens = {s.name: [f"{s.name}{i}" for i in range(count)] for s in kernel.token_inputs}
    scalars = {s: s.name for s in kernel.scalar_inputs}
    left, right = ([f"{side}{i}" for i in range(count)] for side in ("left", "right"))
    fixed = [f"parameter_{p}" for p in parameters]
    varying = [*(n for names in tokens.values() for n in names), *scalars.values(), *left, *right]
    program = Program.of(fixed, varying)
    named = scalars | {parameter_symbol(p): f"parameter_{p}" for p in parameters}
    outputs = program.outputs(kernel, tokens, named)
    flat = {}
    for name, value in outputs.items():
        flat[name] = [program.bilinear(value, left, right)] if isinstance(value, Outers) else value
        flat[name] = [flat[name]] if isinstance(flat[name], str) else flat[name]
    sizes = {name: len(v) for name, v in flat.items()}
    return varying, sizes, program.loop([n for names in flat.values() for n in names], numbers.functions)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("softmax", 2),
        ("softplus(x)/sum(softplus(x))", 3),
        ("a + erf(c + x)", 1),
        ("erfc(-x)/sum(erfc(-x))", 2),
        ("tanh(x)**2/3 + (1 + x**2)**(1/3)", 2),
    ],
)
def test_programs_agree_with_the_oracle(text, count):
    ir = lower(derive(text, "spiked", count))
    for kind, numbers_of in NUMBERS.items():
        numbers = numbers_of()
        close = mpf("1e-12") if kind == "double" else mpf("1e-36")
        with numbers.working(40):
            for kernel in ir.kernels:
                for a, b in compared(kernel, ir.parameters, count, numbers):
                    assert abs(a - b) <= close * (1 + abs(b)), (kind, kernel.name)


def compared(kernel: Kernel, parameters, count, numbers):
    """What the program and what the oracle return for the same inputs."""
    varying, sizes, program = program_of(kernel, parameters, count, numbers)
    values = {n: mpmath.sin(3 * i + 1) * 2 for i, n in enumerate(varying)} | {"V_v": mpf("0.7")}
    given = {p: mpf("0.3") for p in parameters}
    fixed = [numbers.real(v) for v in given.values()]
    found = program(numbers.real(mpf(1)), fixed, [[numbers.real(values[n]) for n in varying]])
    tokens = {s.name: [values[f"{s.name}{i}"] for i in range(count)] for s in kernel.token_inputs}
    left, right = ([values[f"{side}{i}"] for i in range(count)] for side in ("left", "right"))
    reference = evaluate(kernel, tokens, {s.name: values[s.name] for s in kernel.scalar_inputs}, given)
    expected = [contracted(v, left, right) for v in reference.values()]
    expected = [e for v, n in zip(expected, sizes.values(), strict=True) for e in (v * n if len(v) < n else v)]
    return list(zip(map(numbers.read, found), expected, strict=True))


def ridge(alpha: mpf, noise: mpf, penalty: mpf) -> dict[str, mpf]:
    """Order parameters of ridge regression: V = 1/(lambda + alpha/(1 + V)), then m and q are linear equations."""
    b = penalty + alpha - 1
    V = (mpmath.sqrt(b * b + 4 * penalty) - b) / (2 * penalty)
    m = alpha * V / (1 + V)
    shrink = alpha * V**2 / (1 + V) ** 2
    q = (m * m + shrink * (1 + noise**2 - 2 * m)) / (1 - shrink)
    return {"m_v": m, "q_v": q, "V_v": V, "test_risk": 1 + noise**2 - 2 * m + q}


def test_one_token_is_ridge_regression():
    noise, digits = 0.3, 50
    found = rc.solve("softmax", tokens=1, alpha=1, nu=2, noise=noise, lambda_v=0.1, digits=digits)
    with mpmath.workdps(digits + 10):
        expected = ridge(mpf(1), mpf(str(noise)), mpf("0.1"))
        assert found.error <= mpf(10) ** -digits
        assert abs(found.test_risk - expected.pop("test_risk")) <= found.error
        assert abs(found.test_risk - found.excess_risk - mpf(str(noise)) ** 2) < mpf(10) ** -digits / 100
        for name, value in expected.items():
            assert abs(found.order_parameters[name] - value) <= found.errors[name] < mpf(10) ** -digits, name
    assert found.warnings == () and found.folded_mass == 0


def test_an_activation_of_any_row_sum_agrees_with_double_precision():
    """1 + x has no constant row sum, for which the emitter has nothing to print."""
    at = {"tokens": 1, "alpha": 4, "nu": 1, "noise": 0.3, "lambda_k": 2, "lambda_v": 2, "bayes": False}
    rough, fine = (rc.solve("linear", **at, digits=digits) for digits in (10, 14))
    assert fine.error <= 1e-14 and 0 < rough.error <= 1e-10
    assert abs(fine.test_risk - rough.test_risk) <= rough.error


def test_softmax_agrees_with_double_precision(sixteen):
    rough = rc.solve("softmax", tokens=2, digits=12, **POINT)
    assert sixteen.error <= mpf("1e-16") and sixteen.folded_mass < mpf("1e-60")
    assert float(sixteen.test_risk) == pytest.approx(rough.test_risk, abs=1e-12)
    assert float(sixteen.train_loss) == pytest.approx(rough.train_loss, abs=1e-12)
    assert float(sixteen.energy) == pytest.approx(rough.energy, abs=1e-12)
    for field in ("order_parameters", "conjugates"):
        exact = {name: float(value) for name, value in getattr(sixteen, field).items()}
        assert exact == pytest.approx(getattr(rough, field), abs=1e-12)


def test_softmax_agrees_with_more_digits(sixteen):
    with mpmath.workdps(40):
        assert abs(sixteen.test_risk - mpf(TEST_RISK)) <= sixteen.error
        order = sixteen.order_parameters
        energy = 4 * sixteen.train_loss + 4 * order["q_k"] + order["q_v"] / 4
        assert abs(sixteen.energy - energy) < mpf("1e-16")


@pytest.mark.full
def test_the_errors_of_all_numbers_cover(sixteen):
    fine = rc.solve("softmax", tokens=2, digits=21, bayes=False, **POINT)
    with mpmath.workdps(40):
        rough, fine = (s._asdict() | s.order_parameters | s.conjugates for s in (sixteen, fine))
        for name, error in sixteen.errors.items():
            assert name == "replicon" or abs(rough[name] - fine[name]) <= error < mpf("1e-16"), name


@pytest.mark.full
@pytest.mark.parametrize("digits", [20, 30])
def test_softmax_to_many_digits(digits):
    found = rc.solve("softmax", tokens=2, digits=digits, **POINT)
    with mpmath.workdps(digits + 10):
        assert found.error <= mpf(10) ** -digits and found.warnings == ()
        assert abs(found.test_risk - mpf(TEST_RISK)) <= found.error
        order = found.order_parameters
        energy = 4 * found.train_loss + 4 * order["q_k"] + order["q_v"] / 4
        assert abs(found.energy - energy) < mpf(10) ** -digits


@pytest.fixture(scope="module")
def system():
    return derive("softmax", "spiked", 2)


def test_the_integral_does_not_depend_on_the_lattice(system):
    numbers = decimal_numbers()
    with numbers.working(30):
        order, at = reals(*AWAY), physics()
        scout, precise = Scout(system, order, at), PreciseSystem(system, numbers)
        first = precise.averages(order, at, scout.grid(0.65, 16, 0.0))
        scout.center, scout.scale = scout.center + 0.1, 1.1 * scout.scale
        second = precise.averages(order, at, scout.grid(0.6, 18, 0.7))
        assert abs(second.mass - 1) < mpf("1e-13") and max(abs(r) for r in first.rates) > 0.1
        for a, b in zip((*first.rates, first.envelope), (*second.rates, second.envelope), strict=True):
            assert abs(a - b) < mpf("1e-11")


def test_balls_bound_their_rounding(system):
    """Sums of twenty digits against the same of sixty: within the radius, which is no larger than digits allow."""
    order, at = reals(*AWAY), physics()
    grid = Scout(system, order, at).grid(1.0, 9)
    found = {}
    for digits in (20, 60):
        numbers = arb_numbers()
        with numbers.working(digits):
            precise = PreciseSystem(system, numbers)
            sums = precise.sums(order, at, grid, precise.nodes(grid))
            found[digits] = [(numbers.read(s), numbers.radius(s)) for s in sums]
            assert precise.averages(order, at, grid).rounding < mpf(10) ** (2 - digits)
    with mpmath.workdps(60):
        for (value, radius), (exact, _) in zip(found[20], found[60], strict=True):
            assert 0 < radius < mpf("1e-16") * (1 + abs(exact))
            assert abs(value - exact) <= radius


def test_decimals_do_where_there_is_no_flint(monkeypatch):
    assert best_numbers().name == "arb"
    monkeypatch.setattr("replicode.codegen.precise.arb.find_spec", lambda name: None)
    assert best_numbers().name == "decimal"


def test_rates_are_derivatives_of_the_envelope(system):
    order, at = reals(*AWAY), physics()
    scout = Scout(system, order, at)
    grid = scout.grid(0.65, 14)
    rates = scout.double.averages(order, at, grid).rates

    def envelope(i: int, step: float) -> float:
        moved = [x + step * (i == j) for j, x in enumerate(order)]
        return float(scout.double.averages(moved, at, grid).envelope)

    for i, rate in enumerate(rates):
        assert (envelope(i, 1e-4) - envelope(i, -1e-4)) / 2e-4 == pytest.approx(float(rate), abs=1e-7)


def test_averages_agree_with_the_prox_in_double_precision(system):
    module, _ = module_for("softmax", "spiked", 2)
    order, at = reals(*AWAY), physics()
    setting = module.Setting(2.0, 0.3, np.array([]))
    reference = module.ProxChannel.at_level(3, setting).averages(np.array([float(x) for x in order]))
    numbers = decimal_numbers()
    with numbers.working(25):
        found = PreciseSystem(system, numbers).averages(order, at, Scout(system, order, at).grid(0.75, 14))
    assert [float(r) for r in found.rates] == pytest.approx(list(reference.rates), abs=1e-8)
    assert float(found.envelope) == pytest.approx(reference.envelope, abs=1e-8)
    assert float(found.train_loss) == pytest.approx(reference.train_loss, abs=1e-8)


def test_the_flip_halves_the_nodes(system):
    order, at = reals(*AWAY), physics()
    half = Scout(system, order, at).grid(1.0, 9)
    images = half.indices[:, half.multiplicity == 2] * np.array([[1], [-1], [-1]])
    indices = np.concatenate([half.indices, images], axis=1)
    whole = Grid(half.spacing, half.shift, half.center, half.scale, indices, np.ones(indices.shape[1], int), 0.0)
    assert len(set(map(tuple, indices.T.tolist()))) == indices.shape[1]
    precise = Scout(system, order, at).double
    a, b = (precise.averages(order, at, grid) for grid in (half, whole))
    assert [float(x) for x in a.rates] == pytest.approx([float(x) for x in b.rates], rel=1e-12)


def test_folds_limit_the_digits():
    with pytest.raises(Refusal, match=r"16 asked for, but .* folds with mass .*e-16, which limits .* to 14"):
        rc.solve("softmax", tokens=2, digits=16, **(POINT | {"lambda_k": 2}))


@pytest.mark.full
def test_folds_that_do_not_matter_are_counted():
    found = rc.solve("softmax", tokens=2, digits=14, **(POINT | {"lambda_k": 2}))
    assert 10 * found.folded_mass < found.error <= 1e-14 and found.folded_mass > 5e-17


def test_many_dimensions_are_refused():
    module = SimpleNamespace(
        ORDER_NAMES=("V_k",),
        PARAMETERS=("c",),
        LOCATION="gaussian",
        KERNELS=(None,),
        Setting=lambda nu, noise, params: params,
        dimensions=lambda params: (2, 3 if params[0] else 1),
    )
    assert check_dimension(module, {"c": 0.0}) == 3
    with pytest.raises(Refusal, match=r"at most 3 dimensions, and here it has 5"):
        check_dimension(module, {"c": mpf(1)})


@pytest.mark.parametrize("digits", [0, 51, True, 13.0])
def test_digits_out_of_range(digits):
    with pytest.raises(InputError, match=r"digits: got .*a whole number from 1 to 50"):
        rc.solve("softmax", tokens=2, digits=digits, **POINT)


def test_texts_have_the_places_that_are_known():
    with mpmath.workdps(60):
        fields = {"test_risk": mpf(2) / 3, "error": mpf("1.234e-31"), "converged": True, "iterations": 3}
        fields |= {"order_parameters": {"m_k": -mpf("1e-40"), "q_k": mpf("12.00000000000000000500000001")}}
        fields |= {"conjugates": {"mh_k": -mpf(1) / 16, "qh_k": mpf(2) / 3}, "bayes_risk": 1 / 3, "bayes_error": 3e-7}
        fields |= {"replicon": 7.07, "folded_mass": float("nan"), "asked": {"alpha": 4.0}}
        fields |= {
            "errors": {"m_k": mpf("1e-25"), "q_k": mpf(0), "mh_k": mpf("1e-13"), "qh_k": 4.9e-5, "replicon": 30.0}
        }
    assert as_texts(fields, 20) == {
        "test_risk": "0.66666666666666666667",
        "error": "1.23e-31",
        "converged": True,
        "iterations": 3,
        "order_parameters": {"m_k": "0.00000000000000000000", "q_k": "12.00000000000000000500"},
        "conjugates": {"mh_k": "-0.062500000000", "qh_k": "0.6667"},
        "bayes_risk": "0.333333",
        "bayes_error": "3.0e-7",
        "replicon": "7.0",
        "folded_mass": None,
        "asked": {"alpha": 4.0},
        "errors": {"m_k": "1.0e-25", "q_k": "0.0", "mh_k": "1.0e-13", "qh_k": "4.9e-5", "replicon": "30.0"},
    }


def test_no_digit_is_printed_that_is_not_known(sixteen):
    told = sixteen.to_dict()
    places = {name: len(text.partition(".")[2]) for name, text in told["order_parameters"].items()}
    assert set(places.values()) == {16} and max(sixteen.errors[name] for name in places) < mpf("5e-17")
    with mpmath.workdps(30):
        bayes = rc.bayes(tokens=2, alpha=4, nu=2, noise=0.3, digits=11)
        assert abs(mpf(told["bayes_risk"]) - bayes.test_risk) < mpf(10) ** -len(told["bayes_risk"].partition(".")[2])
        assert abs(sixteen.bayes_risk - bayes.test_risk) <= sixteen.bayes_error + bayes.error


@pytest.mark.parametrize(("digits", "kind"), [(15, float), (30, str)])
def test_json_numbers_are_text_above_fifteen_digits(digits, kind):
    arguments = ["--tokens", "1", "--alpha", "2", "--nu", "2", "--lambda-v", "0.1", "--digits", str(digits), "--json"]
    done = CliRunner().invoke(main, ["solve", "softmax", *arguments])
    found = json.loads(done.stdout)
    assert done.exit_code == 0
    assert all(type(found[name]) is kind for name in ("test_risk", "excess_risk", "energy", "error", "residual"))
    with mpmath.workdps(40):
        expected = ridge(mpf(2), mpf(0), mpf("0.1"))
        assert abs(mpf(found["test_risk"]) - expected.pop("test_risk")) <= mpf(10) ** -digits
        for name, value in expected.items():
            assert type(found["order_parameters"][name]) is kind
            assert abs(mpf(found["order_parameters"][name]) - value) <= mpf(10) ** -digits
