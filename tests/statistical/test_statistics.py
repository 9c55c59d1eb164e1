"""Are the stated rates the real ones? Calibration, power and multiplicity of the comparison statistics.

Each check has a false-alarm rate of its own, CHECK; with the seeds fixed it either holds or does not.
"""

from __future__ import annotations

from itertools import combinations
from math import sqrt

import numpy as np
import pytest
from scipy import stats

from replicode.theory.errors import InputError
from replicode.validation.statistics.comparison import compare, compare_grid, extrapolate, holm, t_power

CHECK = 1e-4
DIMS = (200, 400, 800)


def synthetic(rng, quantities, a=1.0, b=30.0, noise=1.0, seeds=8, dims=DIMS, curvature=0.0):
    """Values a + b/D + noise sqrt((1 + curvature/D)/D) xi."""
    return {
        q: {D: a + b / D + noise * sqrt((1 + curvature / D) / D) * rng.standard_normal(seeds) for D in dims}
        for q in quantities
    }


def true_sem(noise, seeds, dims=DIMS):
    """Standard error of the least-squares a at var = noise^2/D, from the textbook covariance of the fit."""
    design = np.array([[1, 1 / D] for D in dims])
    weights = np.diag([seeds * D / noise**2 for D in dims])
    return sqrt(np.linalg.inv(design.T @ weights @ design)[0, 0])


def assert_rate(count, trials, rate):
    assert stats.binomtest(count, trials, rate).pvalue > CHECK, (count / trials, rate)


@pytest.mark.parametrize(
    "curvature, seeds, dims",
    [(0, 8, DIMS), (60, 5, DIMS), (0, 4, (300,))],
    ids=["1/D", "not 1/D", "one D"],
)
def test_family_false_alarm_is_the_stated_one(curvature, seeds, dims):
    # A large limit makes the power trivial, hence quick: only the alarms are looked at.
    rng, trials, rate, family, a = np.random.default_rng(1), 1000, 0.05, "abcd", 1e4
    b = 30.0 if len(dims) > 1 else 0.0
    alarms = 0
    for _ in range(trials):
        values = synthetic(rng, family, a=a, b=b, seeds=seeds, dims=dims, curvature=curvature)
        alarms += compare(values, dict.fromkeys(family, a), false_alarm=rate).verdict == "disagrees"
    # Four independent Bonferroni tests: just below the bound that Holm guarantees.
    assert_rate(alarms, trials, 1 - (1 - rate / 4) ** 4)


def test_single_p_values_are_uniform():
    rng = np.random.default_rng(2)
    p = [compare(synthetic(rng, "a"), {"a": 1.0}).tests["a"].p for _ in range(1000)]
    assert stats.kstest(p, "uniform").pvalue > CHECK
    # The tails decide alarms: the KS test hardly sees them.
    assert_rate(sum(x < 0.01 for x in p), 1000, 0.01)


def test_theory_error_counts_in_quadrature():
    rng, trials, error = np.random.default_rng(3), 1000, 0.05
    alarms = 0
    for _ in range(trials):
        theory = {"a": 1.0 + error * rng.standard_normal()}
        result = compare(synthetic(rng, "a"), theory, {"a": error}, false_alarm=0.05)
        alarms += result.verdict == "disagrees"
    assert_rate(alarms, trials, 0.05)
    test = result.tests["a"]
    total = sqrt(test.sem**2 + error**2)
    assert test.z == pytest.approx((test.mean - test.theory) / total, rel=1e-12)
    # Satterthwaite with a second component that is known exactly.
    assert test.p == pytest.approx(2 * stats.t.sf(abs(test.z), test.dof * (total / test.sem) ** 4), rel=1e-9)


def test_lack_of_fit_is_uniform_under_the_model_and_small_off_it():
    rng = np.random.default_rng(4)
    dims = (200, 300, 400, 800)
    p = [extrapolate(synthetic(rng, "a", dims=dims)["a"]).lack_of_fit for _ in range(1000)]
    assert stats.kstest(p, "uniform").pvalue > CHECK
    bent = {D: 1 + 4e4 / D**2 + rng.standard_normal(8) / sqrt(D) for D in (100, 200, 800)}
    assert extrapolate(bent).lack_of_fit < 1e-6


def test_extrapolation_is_the_weighted_least_squares_fit():
    rng = np.random.default_rng(5)
    values = {D: 2 - 7 / D + rng.standard_normal(n) / sqrt(D) for D, n in [(100, 5), (300, 9), (700, 2)]}
    x = np.concatenate([np.full(len(v), 1 / D) for D, v in values.items()])
    y = np.concatenate(list(values.values()))
    slope, mean = np.polyfit(x, y, 1, w=1 / np.sqrt(x))
    got = extrapolate(values)
    assert got.mean == pytest.approx(mean, rel=1e-10) and got.slope == pytest.approx(slope, rel=1e-10)


def test_extrapolation_of_a_single_dimension_is_the_t_test():
    values = np.random.default_rng(6).standard_normal(9) + 0.4
    test = compare({"a": {50: values}}, {"a": 0.1}).tests["a"]
    textbook = stats.ttest_1samp(values, 0.1)
    assert (test.z, test.p) == pytest.approx((textbook.statistic, textbook.pvalue), rel=1e-10)
    assert test.dof == pytest.approx(8) and test.lack_of_fit is None


def test_standard_error_is_right_on_average():
    rng = np.random.default_rng(7)
    estimates = [extrapolate(synthetic(rng, "a", seeds=6)["a"]) for _ in range(3000)]
    exact = true_sem(1.0, 6)
    variance = np.var([e.mean for e in estimates])
    assert CHECK / 2 < stats.chi2.sf(3000 * variance / exact**2, 2999) < 1 - CHECK / 2
    squares = np.array([e.sem**2 for e in estimates])
    z = (squares.mean() - exact**2) / (squares.std() / sqrt(3000))
    assert abs(z) < stats.norm.isf(CHECK / 2)


def test_a_lone_seed_borrows_its_variance():
    rng = np.random.default_rng(8)
    values = {200: rng.standard_normal(10) / sqrt(200), 400: rng.standard_normal(1) / 20}
    values[800] = np.array([])
    # Two dimensions, a factor of two apart: a = 2 y_400 - y_200, and var(y_400) is taken as var(y_200) / 2.
    variance = values[200].var(ddof=1)
    assert extrapolate(values).sem == pytest.approx(sqrt(variance / 10 + 4 * variance / 2), rel=1e-10)
    for too_few in ({200: np.array([1.0]), 400: np.array([1.1])}, {200: np.array([])}):
        with pytest.raises(InputError, match="seeds"):
            extrapolate(too_few)
    with pytest.raises(InputError, match="finite"):
        extrapolate({200: np.array([1.0, np.nan])})


def closed_testing(p):
    """Adjusted p by closing Bonferroni: the worst intersection hypothesis that contains the quantity."""
    subsets = [s for size in range(1, len(p) + 1) for s in combinations(range(len(p)), size)]
    worst = {s: min(1.0, len(s) * min(p[i] for i in s)) for s in subsets}
    return [max(value for s, value in worst.items() if i in s) for i in range(len(p))]


def test_holm_is_closed_bonferroni():
    rng = np.random.default_rng(9)
    for size in range(1, 7):
        for _ in range(40):
            p = list(rng.random(size) ** rng.integers(1, 5))
            if size > 1 and rng.random() < 0.3:
                p[1] = p[0]
            assert holm(p) == pytest.approx(closed_testing(p), rel=1e-14)


def test_holm_keeps_the_family_rate_with_some_true_alternatives():
    rng, trials = np.random.default_rng(10), 20_000
    nulls = rng.random((trials, 3))
    wrong = sum(min(holm([1e-9, 1e-7, *row])[2:]) < 0.05 for row in nulls)
    assert_rate(wrong, trials, 1 - (1 - 0.05 / 3) ** 3)


def test_power_is_the_noncentral_t_tail():
    for dof in (3.0, 7.3, 40.0, 1e4):
        for shift in (0.0, 0.5, 2.0, 5.0, 12.0):
            for level in (0.05, 1e-4):
                t = stats.t.isf(level / 2, dof)
                exact = stats.nct.sf(t, dof, shift) + stats.nct.sf(t, dof, -shift)
                assert t_power(shift, dof, level) == pytest.approx(exact, abs=1e-7)
    assert t_power(float("inf"), 3.0, 1e-4) == 1.0
    assert t_power(1e9, 1.0, 1e-4) == pytest.approx(1.0)


@pytest.mark.parametrize("dims, seeds, dof", [((300,), 6, 5.0), (DIMS, 30, None)], ids=["one D", "three D"])
def test_stated_power_is_realised(dims, seeds, dof):
    rng, trials, rate = np.random.default_rng(11), 800, 0.05
    sem = true_sem(0.2, seeds) if len(dims) > 1 else 0.2 / sqrt(seeds * dims[0])
    theory = {"a": 1.0, "b": 1.0}
    shift = 2.8 * sem if dof is None else 3.5 * sem
    results = []
    for _ in range(trials):
        values = synthetic(rng, "ab", a=1.0 + shift, b=0.0, noise=0.2, seeds=seeds, dims=dims)
        results.append(compare(values, theory, false_alarm=rate, shift=shift))
    degrees = np.mean([r.tests["a"].dof for r in results]) if dof is None else dof
    expected = t_power(shift / sem, degrees, rate / 2)
    assert 0.4 < expected < 0.8
    assert_rate(sum(r.tests["a"].p < rate / 2 for r in results), trials, expected)
    # Two quantities shift, either may raise the alarm: the stated figure is a lower bound, also as estimated.
    realised = sum(r.verdict == "disagrees" for r in results)
    stated = float(np.mean([r.power for r in results]))
    assert stats.binomtest(realised, trials, stated, alternative="less").pvalue > CHECK
    single = float(np.mean([r.tests["a"].power for r in results]))
    assert single == pytest.approx(expected, abs=0.1 if degrees < 10 else 0.02)


def test_seeds_needed_give_the_power_they_promise():
    rng, trials = np.random.default_rng(12), 300
    pilot = compare(synthetic(rng, "a", b=0.0, noise=0.5, seeds=400), {"a": 1.0})
    needed = pilot.seeds_needed
    assert pilot.power > 0.9 and 10 < needed < 400
    expected = t_power(0.03 / true_sem(0.5, needed), 2.2 * needed, 1e-3)
    assert expected == pytest.approx(0.9, abs=0.05)
    alarms = sum(
        compare(synthetic(rng, "a", a=1.03, b=0.0, noise=0.5, seeds=needed), {"a": 1.0}).verdict == "disagrees"
        for _ in range(trials)
    )
    assert_rate(alarms, trials, expected)


def test_verdicts():
    rng = np.random.default_rng(13)
    sharp = synthetic(rng, "ab", noise=0.05, seeds=10)
    assert compare(sharp, {"a": 1.0, "b": 1.0}).verdict == "agrees"
    assert compare(sharp, {"a": 1.0, "b": 1.05}).verdict == "disagrees"
    blunt = compare(synthetic(rng, "ab", noise=3.0), {"a": 1.0, "b": 1.0})
    assert blunt.verdict == "undecided" and blunt.power < 0.9 and blunt.seeds_needed > 8


def test_no_seeds_help_where_the_theory_is_zero_or_blurred():
    values = synthetic(np.random.default_rng(14), "a", a=0.0, b=0.0)
    zero = compare(values, {"a": 0.0})
    assert (zero.verdict, zero.seeds_needed) == ("undecided", None)
    assert zero.power == pytest.approx(1e-3, rel=1e-6)
    blurred = compare(synthetic(np.random.default_rng(15), "a"), {"a": 1.0}, {"a": 0.1})
    assert (blurred.verdict, blurred.seeds_needed) == ("undecided", None)


def test_exactly_known_values():
    same = {"a": {10: np.full(4, 0.25)}, "b": {10: np.zeros(4)}}
    right = compare(same, {"a": 0.25, "b": 0.0})
    assert (right.verdict, right.p_value, right.tests["b"].z) == ("agrees", 1.0, 0.0)
    assert compare(same, {"a": 0.25, "b": 1e-9}).verdict == "disagrees"


def test_a_grid_is_one_family():
    rng = np.random.default_rng(16)
    points = {f"p{i}": synthetic(rng, "ab", noise=0.05) for i in range(5)}
    theory = {p: {"a": 1.0, "b": 1.0} for p in points}
    grid = compare_grid(points, theory)
    assert grid.verdict == "agrees" and len(grid.tests) == 10
    raw = {name: test.p for name, test in grid.tests.items()}
    assert [t.adjusted_p for t in grid.tests.values()] == holm(list(raw.values()))
    assert raw["p3:b"] == compare(points["p3"], theory["p3"]).tests["b"].p
    assert compare_grid(points, theory | {"p2": {"a": 1.0, "b": 1.1}}).verdict == "disagrees"


def test_a_grid_is_as_sharp_as_its_bluntest_point():
    rng = np.random.default_rng(17)
    points = {"sharp": synthetic(rng, "ab", noise=0.05), "blunt": synthetic(rng, "ab", noise=3.0)}
    theory = {p: {"a": 1.0, "b": 1.0} for p in points}
    grid = compare_grid(points, theory)
    assert grid.verdict == "undecided"
    assert grid.power == max(grid.tests["blunt:a"].power, grid.tests["blunt:b"].power)
    assert grid.seeds_needed == min(grid.tests["blunt:a"].seeds_needed, grid.tests["blunt:b"].seeds_needed)


def test_grid_false_alarm_is_the_stated_one():
    rng, trials = np.random.default_rng(18), 600
    theory = {p: {"a": 1e4, "b": 1e4} for p in "xyz"}
    alarms = 0
    for _ in range(trials):
        points = {p: synthetic(rng, "ab", a=1e4) for p in "xyz"}
        alarms += compare_grid(points, theory, false_alarm=0.1).verdict == "disagrees"
    assert_rate(alarms, trials, 1 - (1 - 0.1 / 6) ** 6)


def test_comparison_refuses_what_it_cannot_compare():
    values = synthetic(np.random.default_rng(19), "a")
    with pytest.raises(InputError, match="theory"):
        compare(values, {"other": 1.0})
    with pytest.raises(InputError, match="finite"):
        compare(values, {"a": float("nan")})
    with pytest.raises(InputError, match="theory_error"):
        compare(values, {"a": 1.0}, {"a": -0.1})
    with pytest.raises(InputError, match="false_alarm"):
        compare(values, {"a": 1.0}, false_alarm=0.0)
