"""Extrapolation in 1/D, and tests of trained values against a theory with a stated false-alarm rate.

Each quantity comes as values at several dimensions D, several seeds each, with E[value | D] = a + b/D; a is
compared with the theory. The estimator of a is linear in the per-D means with *fixed* weights n_D D (the
efficient ones when the variance falls as 1/D), its standard error comes from the per-D sample variances, its
degrees of freedom from Satterthwaite. Why so: false alarms relative to nominal, measured on 400 000 Gaussian
replicas of 8 seeds at D = 200, 400, 800, levels 0.05 and 1e-3,

    variance of a value          s^2/D         (1 + 60/D) s^2/D   (1 - 60/D) s^2/D
    this estimator               0.99, 1.09    0.98, 1.01         1.00, 1.12
    one pooled s^2/D             1.00, 1.03    0.94, 0.89         1.10, 1.23
    weights from the variances   1.23, 1.73    1.22, 1.76         1.25, 1.77

Control variates, if given, have mean zero at every D and are regressed out: a value becomes value - beta . controls,
with one beta for all D (values and controls both fluctuate like 1/sqrt(D)), estimated from the scatter within each D.
What beta costs is counted: its own variance in the standard error, its degrees of freedom in the variances. Where
seeds are few only the first controls are used, one for each DEGREES_PER_CONTROL degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf, isfinite, sqrt
from typing import Literal

import numpy as np
from scipy import special

from replicode.theory.errors import InputError
from replicode.validation.data.sampling import Array

Values = Mapping[int, Array]
Variates = Mapping[int, Array]
Verdict = Literal["agrees", "disagrees", "undecided"]

FALSE_ALARM = 1e-3
SHIFT = 0.03
POWER = 0.9
MOST_SEEDS = 10**7
DEGREES_PER_CONTROL = 4
RANK = 1e-7  # smaller singular values of the controls, relative to the largest, are rounding


@dataclass(frozen=True)
class Estimate:
    """The limit a of a + b/D with its standard error and degrees of freedom; slope is b (0 for a single D).

    lack_of_fit is the p-value of the linear form itself, None with fewer than three dimensions; gain is how many
    times smaller the control variates made the variance of a value.
    """

    mean: float
    sem: float
    dof: float
    slope: float
    seeds: int
    lack_of_fit: float | None
    gain: float


@dataclass(frozen=True)
class QuantityTest:
    """One quantity against its theory value; z = (mean - theory)/sqrt(sem^2 + theory_error^2)."""

    theory: float
    theory_error: float
    mean: float
    sem: float
    dof: float
    z: float
    p: float
    adjusted_p: float
    power: float
    seeds_needed: int | None
    lack_of_fit: float | None
    gain: float


@dataclass(frozen=True)
class Comparison:
    """The tests of a family and its verdict.

    p_value is the smallest Holm-adjusted p. power is a lower bound on the chance of an alarm when the truth
    is off by the fraction `shift` of the theory, as estimated from the scatter of the seeds (optimistic by up
    to 0.1 below ten degrees of freedom); seeds_needed per dimension bring it to 0.9, None if none do.
    """

    tests: Mapping[str, QuantityTest]
    verdict: Verdict
    p_value: float
    power: float
    seeds_needed: int | None
    false_alarm: float
    shift: float


def extrapolate(values: Values, variates: Variates | None = None) -> Estimate:
    """Estimate of the D -> infinity limit; with a single D, of its mean, and no correction of order 1/D.

    `variates` has one row of control variates for every value, the most useful first.
    """
    dims, raw = _checked(values)
    fit = _regression(dims, raw, _controls(variates, dims, raw))
    samples = fit.samples
    counts = np.array([sample.size for sample in samples], dtype=np.float64)
    means = np.array([sample.mean() for sample in samples])
    limit, slope = _coefficients(dims, counts * dims)
    scale, dof_all = _pooled_scale(dims, samples, fit.spare)
    variances, dofs = _variances(dims, fit, scale, dof_all)
    parts = limit**2 * variances / counts
    mean = float(limit @ means)
    # The scatter of the seeds, that of the coefficients of the controls, and the rounding of values that are all alike.
    variance = float(parts.sum() + scale * limit @ fit.shared @ limit)
    sem = hypot(sqrt(variance), 4 * float(np.finfo(float).eps) * abs(mean))
    weight = float((parts**2 / dofs).sum())
    dof = float(parts.sum()) ** 2 / weight if weight > 0 else float(dofs.sum())
    gain = float(_pooled_scale(dims, raw)[0] / scale) if fit.spare < 1 and scale > 0 else 1.0
    fit_p = _lack_of_fit(means, dims, counts, fit, scale, dof_all)
    return Estimate(mean, sem, dof, float(slope @ means), int(counts.max()), fit_p, gain)


def _checked(values: Values) -> tuple[Array, list[Array]]:
    """Dimensions and samples, the empty ones left out; an InputError where no variance can be had."""
    kept = {dim: np.asarray(values[dim], dtype=np.float64) for dim in sorted(values) if len(values[dim])}
    if not any(sample.size > 1 for sample in kept.values()):
        raise InputError("seeds", {dim: sample.size for dim, sample in kept.items()}, "at least two at some dimension")
    for dim, sample in kept.items():
        if not np.isfinite(sample).all():
            raise InputError("values", sample.tolist(), f"finite numbers (dimension {dim})")
    return np.array(list(kept), dtype=np.float64), list(kept.values())


def _controls(variates: Variates | None, dims: Array, samples: Sequence[Array]) -> list[Array]:
    """The control variates that these seeds can bear, one array (seeds, controls) for each dimension."""
    if variates is None:
        return [np.empty((sample.size, 0)) for sample in samples]
    rows = [np.asarray(variates[int(dim)], dtype=np.float64) for dim in dims]
    shapes = [row.shape for row in rows]
    if any(row.ndim != 2 or len(row) != s.size or row.shape[1] != rows[0].shape[1] for row, s in zip(rows, samples)):
        raise InputError(
            "variates", shapes, f"one row of the same length for each of {[s.size for s in samples]} values"
        )
    if not all(np.isfinite(row).all() for row in rows):
        raise InputError("variates", shapes, "finite numbers")
    borne = sum(sample.size - 1 for sample in samples) // DEGREES_PER_CONTROL
    return [row[:, :borne] for row in rows]


@dataclass(frozen=True, eq=False)
class _Regression:
    """Values with their controls regressed out.

    spare is the share of the degrees of freedom that the coefficients leave; shared is the covariance that they give
    the means at the dimensions, in units of s^2 where var = s^2/D.
    """

    samples: list[Array]
    spare: float
    shared: Array


def _regression(dims: Array, samples: list[Array], controls: list[Array]) -> _Regression:
    """One set of coefficients for all D, by least squares on the scatter about the means at each D."""
    if controls[0].shape[1] == 0:
        return _Regression(samples, 1.0, np.zeros((dims.size, dims.size)))
    rows = np.concatenate([sqrt(d) * (c - c.mean(axis=0)) for d, c in zip(dims, controls)])
    target = np.concatenate([sqrt(d) * (s - s.mean()) for d, s in zip(dims, samples)])
    # Controls that coincide, or vanish, for some activation leave a smaller rank and nothing else.
    sizes = np.sqrt((rows**2).sum(axis=0))
    sizes[sizes == 0] = 1.0
    left, singular, right = np.linalg.svd(rows / sizes, full_matrices=False)
    kept = singular > RANK * singular[0]
    inverse = (right[kept].T / singular[kept]) / sizes[:, None]
    coefficients = inverse @ (left[:, kept].T @ target)
    levers = np.array([c.mean(axis=0) for c in controls]) @ inverse
    spare = 1 - int(kept.sum()) / sum(s.size - 1 for s in samples)
    return _Regression([s - c @ coefficients for s, c in zip(samples, controls)], spare, levers @ levers.T)


def _coefficients(dims: Array, weights: Array) -> tuple[Array, Array]:
    """Coefficients of the per-D means in the weighted least-squares a and b."""
    if dims.size == 1:
        return np.ones(1), np.zeros(1)
    # In units of the smallest D the normal equations are well conditioned.
    inverse = dims[0] / dims
    design = np.stack([np.ones_like(dims), inverse], axis=1)
    solved = np.linalg.solve(design.T @ (weights[:, None] * design), design.T * weights)
    return solved[0], solved[1] * dims[0]


def _variances(dims: Array, fit: _Regression, scale: float, total: float) -> tuple[Array, Array]:
    """Variance of a value at each D and its degrees of freedom; a lone seed borrows s^2/D from the others."""
    dofs = np.array([(s.size - 1) * fit.spare if s.size > 1 else total for s in fit.samples])
    squares = [((s - s.mean()) ** 2).sum() if s.size > 1 else scale / d * total for d, s in zip(dims, fit.samples)]
    return np.array(squares) / dofs, dofs


def _pooled_scale(dims: Array, samples: Sequence[Array], spare: float = 1.0) -> tuple[float, float]:
    """s^2 of var = s^2/D from all dimensions, and its degrees of freedom."""
    squares = sum(d * float(((s - s.mean()) ** 2).sum()) for d, s in zip(dims, samples))
    dof = spare * sum(s.size - 1 for s in samples)
    return squares / dof, dof


def _lack_of_fit(means: Array, dims: Array, counts: Array, fit: _Regression, scale: float, dof: float) -> float | None:
    """p-value of the F test of the means' scatter about a + b/D against the pooled scatter of the seeds."""
    if dims.size < 3 or scale == 0:
        return None
    precision = np.linalg.inv(np.diag(1 / (counts * dims)) + fit.shared)
    design = np.stack([np.ones_like(dims), dims[0] / dims], axis=1)
    residuals = means - design @ np.linalg.solve(design.T @ precision @ design, design.T @ precision @ means)
    statistic = float(residuals @ precision @ residuals) / (dims.size - 2) / scale
    return float(special.fdtrc(dims.size - 2, dof, statistic))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm-adjusted p-values, in the order given."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def t_power(noncentrality: float, dof: float, level: float) -> float:
    """Power of the two-sided t test of this level when the mean is noncentrality standard errors off.

    The noncentral t tails, as the average of Phi over the law of S = sqrt(chi^2_dof / dof), by the trapezoid
    rule in log S. (scipy.stats.nct warns or fails at one degree of freedom and some large noncentralities.)
    """
    if not isfinite(noncentrality):
        return 1.0
    critical = -float(special.stdtrit(dof, level / 2))
    # The log density of u = log S is dof (u + 1/2 - e^{2u}/2) up to a constant, below -23 at both ends.
    x = 23 / dof
    u = np.linspace(-x - sqrt(x), sqrt(x), 601)
    density = np.exp(dof * (u + 0.5 - np.exp(2 * u) / 2))
    threshold = critical * np.exp(u)
    alarm = special.ndtr(noncentrality - threshold) + special.ndtr(-noncentrality - threshold)
    return float(density @ alarm / density.sum())


def compare(
    values: Mapping[str, Values],
    theory: Mapping[str, float],
    theory_error: Mapping[str, float] | None = None,
    *,
    variates: Variates | None = None,
    false_alarm: float = FALSE_ALARM,
    shift: float = SHIFT,
) -> Comparison:
    """Compare the quantities that both the values and the theory have, as one family."""
    controls = None if variates is None else {"": variates}
    errors = {"": theory_error or {}}
    return compare_grid({"": values}, {"": theory}, errors, variates=controls, false_alarm=false_alarm, shift=shift)


def compare_grid(
    values: Mapping[str, Mapping[str, Values]],
    theory: Mapping[str, Mapping[str, float]],
    theory_error: Mapping[str, Mapping[str, float]] | None = None,
    *,
    variates: Mapping[str, Variates] | None = None,
    false_alarm: float = FALSE_ALARM,
    shift: float = SHIFT,
) -> Comparison:
    """Compare named points, each with its quantities, as ONE Holm family; tests are named "point:quantity".

    Within a point all quantities shift together and the best of them decides the power; the power of the grid
    is that of its weakest point, so that "agrees" is a statement about every point. The control variates of a point
    serve all its quantities.
    """
    _check_rates(false_alarm, shift)
    pairs = [(p, q) for p in values for q in values[p] if q in theory.get(p, {})]
    if not pairs or len({p for p, _ in pairs}) < len(values):
        raise InputError("theory", {p: list(q) for p, q in theory.items()}, "a measured quantity at every point")
    level = false_alarm / len(pairs)
    errors = theory_error or {}
    controls = variates or {}
    raw = [_Raw.of(values[p][q], theory[p][q], errors.get(p, {}).get(q, 0.0), controls.get(p)) for p, q in pairs]
    adjusted = holm([test.p for test in raw])
    tests = {pair: test.finished(a, level, shift) for pair, test, a in zip(pairs, raw, adjusted)}
    power, seeds = _grid_power(tests)
    smallest = min(adjusted)
    named = {f"{p}:{q}" if p else q: test for (p, q), test in tests.items()}
    return Comparison(named, _verdict(smallest, power, false_alarm), smallest, power, seeds, false_alarm, shift)


def _check_rates(false_alarm: float, shift: float) -> None:
    """An InputError for rates outside their range."""
    if not 0 < false_alarm < 1:
        raise InputError("false_alarm", false_alarm, "a number between 0 and 1")
    if not (isfinite(shift) and shift > 0):
        raise InputError("shift", shift, "a finite number above 0")


def _verdict(p_value: float, power: float, false_alarm: float) -> Verdict:
    """The verdict of a family on its smallest adjusted p-value and its power."""
    if p_value < false_alarm:
        return "disagrees"
    return "agrees" if power >= POWER else "undecided"


def _grid_power(tests: Mapping[tuple[str, str], QuantityTest]) -> tuple[float, int | None]:
    """The weakest point's power, and the seeds that bring every point to POWER."""
    power, seeds = 1.0, 0.0
    for point in {p for p, _ in tests}:
        here = [test for (p, _), test in tests.items() if p == point]
        power = min(power, max(test.power for test in here))
        seeds = max(seeds, min(inf if test.seeds_needed is None else test.seeds_needed for test in here))
    return power, int(seeds) if isfinite(seeds) else None


@dataclass(frozen=True)
class _Raw:
    """A single quantity's t test, before the family is known."""

    estimate: Estimate
    theory: float
    theory_error: float

    @classmethod
    def of(cls, values: Values, theory: float, theory_error: float, variates: Variates | None) -> _Raw:
        """The test of these values."""
        if not isfinite(theory):
            raise InputError("theory", theory, "a finite number")
        if not (isfinite(theory_error) and theory_error >= 0):
            raise InputError("theory_error", theory_error, "a finite number of at least 0")
        return cls(extrapolate(values, variates), theory, theory_error)

    @property
    def z(self) -> float:
        """The t statistic."""
        return self._standardised(self.estimate.mean - self.theory, self._spread(1.0)[0])

    @property
    def p(self) -> float:
        """The two-sided p-value."""
        return 2 * float(special.stdtr(self._spread(1.0)[1], -abs(self.z)))

    @staticmethod
    def _standardised(difference: float, spread: float) -> float:
        """difference / spread, with 0/0 = 0: an exactly known quantity that is right."""
        if spread == 0:
            return float(np.sign(difference)) * inf if difference else 0.0
        return difference / spread

    def _spread(self, factor: float) -> tuple[float, float]:
        """Standard error with the theory's in quadrature, and its dof, at `factor` times the seeds."""
        sem = self.estimate.sem / sqrt(factor)
        # A D with n seeds has n - 1 degrees; Satterthwaite's dof grows in the same proportion.
        n = self.estimate.seeds
        dof = self.estimate.dof * (factor * n - 1) / (n - 1)
        total = hypot(sem, self.theory_error)
        if sem > 0:
            dof *= (total / sem) ** 4
        return total, min(dof, 1e6)

    def _power(self, level: float, shift: float, factor: float = 1.0) -> float:
        """Power against a shift of the theory by the given fraction of itself."""
        spread, dof = self._spread(factor)
        return t_power(self._standardised(shift * self.theory, spread), dof, level)

    def _seeds_needed(self, level: float, shift: float) -> int | None:
        """The least number of seeds per D with power at least POWER, by bisection."""
        n = self.estimate.seeds
        low, high = 1, 2
        while self._power(level, shift, high / n) < POWER:
            low, high = high, 2 * high
            if high > MOST_SEEDS:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._power(level, shift, middle / n) >= POWER else (middle, high)
        return high

    def finished(self, adjusted_p: float, level: float, shift: float) -> QuantityTest:
        """The test with what the family adds."""
        e = self.estimate
        power, seeds = self._power(level, shift), self._seeds_needed(level, shift)
        known = (self.theory, self.theory_error, e.mean, e.sem, e.dof, self.z, self.p)
        return QuantityTest(*known, adjusted_p, power, seeds, e.lack_of_fit, e.gain)
