"""Control variates: means that are zero at every D, what they explain of real trainings, and their regression."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest
from generated import module_of
from scipy import stats

from replicode.theory.errors import InputError
from replicode.validation.experiment import report, run
from replicode.validation.module import GeneratedAttention
from replicode.validation.statistics.comparison import DEGREES_PER_CONTROL, extrapolate
from replicode.validation.statistics.controls import CONTROLS, controls_of
from replicode.validation.statistics.measure import QUANTITIES

NONE = np.array([])
FALSE_ALARM = 1e-4  # of each statistical check; at fixed seeds it either holds or does not


def attention_of(activation, task, tokens, nu, noise=0.3):
    return GeneratedAttention(module_of(activation, task, tokens), nu, noise, NONE)


@pytest.mark.parametrize(
    "activation, task, tokens, nu",
    [("softmax", "spiked", 2, 2.0), ("linear", "max", 2, inf), ("softmax", "spiked", "1:0.2,2:0.3,3:0.5", 4.0)],
)
def test_means_are_zero_at_small_dimensions(activation, task, tokens, nu):
    """D = 4, where D - 2 is half of D; fifty data sets of 10 000 sequences."""
    attention = attention_of(activation, task, tokens, nu)
    controls, setting = controls_of(attention), attention.setting(2500.0)
    rng = np.random.default_rng(1)
    drawn = [controls.of(setting.sampler(4, rng).draw(rng)) for _ in range(50)]
    assert tuple(drawn[0]) == CONTROLS
    for name in CONTROLS:
        values = np.array([row[name] for row in drawn])
        assert stats.ttest_1samp(values, 0.0).pvalue > FALSE_ALARM, name
        assert values.std() > 1e-3


@pytest.fixture(scope="module")
def experiment():
    """Forty trainings at each of two small dimensions."""
    attention = attention_of("softmax", "spiked", 2, 2.0)
    start = attention.start("informed")
    setting, controls = attention.setting(4.0), controls_of(attention)
    return run(setting, attention, (1.0, 1.0), start, attention.risk, (40, 80), 40, controls=controls)


def test_trained_quantities_follow_their_control_variates(experiment):
    """At D = 200 and 150 seeds the ratios are 3.6, 4.5, 15, 1.8, 3.5, 11 and 11 (docs/statistics.md)."""
    least = dict(zip(QUANTITIES, (2.0, 2.5, 7.0, 1.3, 1.7, 5.0, 5.0)))
    for quantity in QUANTITIES:
        plain = extrapolate(experiment.values[quantity])
        controlled = extrapolate(experiment.values[quantity], experiment.variates)
        assert plain.gain == 1.0 and controlled.gain > least[quantity], quantity
        assert controlled.sem < plain.sem / sqrt(least[quantity]) * 1.15
        # Both estimate the same limit: their difference is within four of the larger standard error.
        assert abs(controlled.mean - plain.mean) < 4 * plain.sem


def test_a_report_uses_the_control_variates(experiment):
    theory = {"energy": 1.0338082609810362}
    found = report(theory, experiment)
    expected = extrapolate(experiment.values["energy"], experiment.variates)
    row = found["trained"]["energy"]
    assert (row["mean"], row["sem"], row["variance_ratio"]) == (expected.mean, expected.sem, expected.gain)
    assert found["verdict"] == "agrees"


def regressed(values, controls):
    """Intercept of the textbook regression and its standard error."""
    design = np.column_stack([np.ones(len(values)), controls])
    coefficients, squares, *_ = np.linalg.lstsq(design, values, rcond=None)
    dof = len(values) - design.shape[1]
    return coefficients[0], sqrt(squares[0] / dof * np.linalg.inv(design.T @ design)[0, 0]), dof


def correlated(rng, count, size=3):
    controls = rng.standard_normal((count, size))
    return controls @ np.arange(1.0, size + 1) + rng.standard_normal(count), controls


def test_a_single_dimension_is_the_textbook_regression():
    values, controls = correlated(np.random.default_rng(2), 20)
    found = extrapolate({50: values}, {50: controls})
    assert (found.mean, found.sem, found.dof) == pytest.approx(regressed(values, controls), rel=1e-10)


def test_several_dimensions_are_one_regression_where_the_variance_falls_as_one_over_d():
    """With the pooled variance in place of one for each D, which differ little here, and the weights n D."""
    rng, dims = np.random.default_rng(3), (100, 200, 400)
    drawn = {d: correlated(rng, 4000) for d in dims}
    values = {d: 1 + 5 / d + v / sqrt(d) for d, (v, _) in drawn.items()}
    found = extrapolate(values, {d: c / sqrt(d) for d, (_, c) in drawn.items()})
    rows = [np.column_stack([np.full(4000, sqrt(d)), np.full(4000, 1 / sqrt(d)), drawn[d][1]]) for d in dims]
    design, target = np.concatenate(rows), np.concatenate([sqrt(d) * values[d] for d in dims])
    fitted, squares, *_ = np.linalg.lstsq(design, target, rcond=None)
    sem = sqrt(squares[0] / (len(target) - 5) * np.linalg.inv(design.T @ design)[0, 0])
    assert found.mean == pytest.approx(fitted[0], abs=0.05 * sem) and found.sem == pytest.approx(sem, rel=0.03)
    assert found.slope == pytest.approx(fitted[1], rel=1e-2)
    assert found.gain == pytest.approx(15.0, rel=0.05)


def test_the_fit_is_judged_with_the_controls():
    rng, dims = np.random.default_rng(4), (100, 200, 300, 400)
    p = []
    for _ in range(600):
        drawn = {d: correlated(rng, 6) for d in dims}
        values = {d: 1 + 5 / d + v / sqrt(d) for d, (v, _) in drawn.items()}
        p.append(extrapolate(values, {d: c / sqrt(d) for d, (_, c) in drawn.items()}).lack_of_fit)
    assert stats.kstest(p, "uniform").pvalue > FALSE_ALARM


def test_few_seeds_bear_few_controls():
    values, controls = correlated(np.random.default_rng(5), 1 + 2 * DEGREES_PER_CONTROL)
    assert extrapolate({50: values}, {50: controls}) == extrapolate({50: values}, {50: controls[:, :2]})
    few = {50: values[:DEGREES_PER_CONTROL]}
    assert extrapolate(few, {50: controls[:DEGREES_PER_CONTROL]}) == extrapolate(few)


def test_controls_that_coincide_or_vanish_count_once():
    """As with one token, where no key matters."""
    values, controls = correlated(np.random.default_rng(6), 40)
    doubled = np.column_stack([controls, controls @ [1.0, 2.0, 0.5], np.zeros(40)])
    once, twice = (extrapolate({50: values}, {50: c}) for c in (controls, doubled))
    assert (twice.mean, twice.sem, twice.dof) == pytest.approx((once.mean, once.sem, once.dof), rel=1e-9)


def test_control_variates_that_do_not_fit_are_refused():
    values = {50: np.arange(20.0)}
    for bad in (np.zeros((19, 2)), np.zeros(20), np.full((20, 2), np.nan)):
        with pytest.raises(InputError, match="variates"):
            extrapolate(values, {50: bad})
