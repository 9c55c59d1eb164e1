"""One step of breaking: hierarchical matrices, every step by numbers, limits, and the Sherrington-Kirkpatrick model."""

import checker
import numpy as np
import pytest
import sympy as sp
from scipy import optimize

from replicode.codegen.runtime.nodes import lattice
from replicode.codegen.runtime.rsb_grid import Axis, cell, second_slopes, smoothed
from replicode.codegen.runtime.rsb_nested import Cloud, Tilted, fifth_order, inner_nodes, whole_ball
from replicode.derivations.present import as_json, as_latex, derivation
from replicode.theory.derive.hierarchy import HierarchicalMatrix
from replicode.theory.derive.replica import BETA, N_REPLICAS, ReplicaMatrix, per_replica
from replicode.theory.derive.rsb import (
    BLOCK_SIZE,
    SIZES,
    TILTED_ENVELOPE,
    Y_PARISI,
    derive_step,
    fluctuation,
    tilting_rate,
    zero_temperature,
)
from replicode.theory.derive.saddle import derive

A, B, C = sp.symbols("a b c", positive=True)


@pytest.fixture(scope="module")
def step():
    return derive_step(derive("softmax", "spiked", 2))


@pytest.mark.parametrize("sizes", [(1, 2, 4), (1, 3, 6), (1, 2, 4, 8)])
def test_hierarchical_matrices(sizes):
    names = [sp.Symbol(f"s_{i}", positive=True) for i in range(len(sizes))]
    parts = sp.symbols("a b c d", positive=True)[: len(sizes)]
    at = dict(zip(names, sizes, strict=True))
    matrix = HierarchicalMatrix(parts, (sp.S.One, *names[1:]))
    values = {p: sp.Rational(i + 2, 7) for i, p in enumerate(parts)}
    whole = matrix.explicit(sizes).subs(values)
    assert sp.exp(matrix.log_det()).subs(at).subs(values).evalf() == pytest.approx(float(whole.det()))
    inverse = matrix.inverse()
    found = HierarchicalMatrix(tuple(p.subs(at).subs(values) for p in inverse.parts), sizes).explicit(sizes)
    assert (whole * found - sp.eye(sizes[-1])).is_zero_matrix
    assert float(matrix.trace_with(matrix).subs(at).subs(values)) == pytest.approx(float((whole * whole).trace()))
    assert float(inverse.sum().subs(at).subs(values)) == pytest.approx(float(sum(found)))


def test_two_sizes_are_replica_symmetry():
    two, known = HierarchicalMatrix((A, B), (sp.S.One, N_REPLICAS)), ReplicaMatrix(A, B)
    assert sp.simplify(two.log_det() - known.log_det()) == 0
    assert sp.simplify(two.inverse().parts[1] - known.inverse().b) == 0


def test_every_step_by_numbers(step):
    shown = as_json(derivation(step))
    assert len(shown["steps"]) == 30
    assert checker.failures(shown, points=1, known=set()) == []
    assert {"q0_k", "q1_v", "Vh_k", "df_dy", "complexity", "energy", "T_between_kk"} <= set(shown["equations"])
    assert r"\Sigma" in as_latex(derivation(step))


def test_the_free_energy_is_that_of_the_theory_brief(step):
    y = Y_PARISI
    for b in step.blocks:
        m, q0, q1, v = b.order
        wide = v + y * (q1 - q0)
        expected = b.block.strength * q1 / 2 - (q0 - m**2) / (2 * wide) - sp.log(wide / v) / (2 * y)
        gap = step.reduced_priors[b.block.name] - expected
        values = {s: sp.Rational(i + 3, 11) for i, s in enumerate(sorted(gap.free_symbols, key=str))}
        assert abs(float(gap.subs(values))) < 1e-12


def test_replica_symmetry_is_a_limit(step):
    for b in step.blocks:
        m, q0, q1, v = b.order
        own = step.reduced_priors[b.block.name]
        symmetric = b.block.strength * q1 / 2 - (q1 - m**2) / (2 * v)
        assert sp.simplify(own.subs(q0, q1) - symmetric) == 0
        assert sp.simplify(sp.limit(own, Y_PARISI, 0) - symmetric) == 0


def test_fluctuations_stay_outside_the_saddle():
    for kind in ("within", "between"):
        _, direction = fluctuation(kind)
        assert direction == direction.T and set(direction * sp.ones(8, 1)) == {0}


def test_the_equation_of_y_is_the_derivative(step):
    free = step.free_energy.replace(sp.Function("EF"), lambda *a: sp.sin(a[-1]))
    slope = step.slope.replace(sp.Function("EF"), lambda *a: sp.sin(a[-1]))
    tilted = sp.sin(Y_PARISI) + Y_PARISI * sp.cos(Y_PARISI)
    gap = sp.diff(free, Y_PARISI) - slope.subs(TILTED_ENVELOPE, tilted)
    values = {s: sp.Rational(i + 3, 13) for i, s in enumerate(sorted(gap.free_symbols, key=str))}
    assert abs(complex(gap.subs(values).evalf())) < 1e-12


class SpinGlass:
    """Sherrington-Kirkpatrick at zero temperature: the energy tr Q^2 beside the envelope M = -|w| - V/2 of a spin."""

    def __init__(self):
        q0, v = sp.symbols("q0 V", positive=True)
        overlaps = HierarchicalMatrix((v / BETA, 1 - v / BETA - q0, q0), SIZES)
        entropy = per_replica(-(BETA**2) * overlaps.trace_with(overlaps) / 4)
        energy = zero_temperature(entropy) - v / 2
        assert sp.simplify(sp.diff(energy, v)) == 0  # of the response nothing is left at one step
        rate = tilting_rate()
        envelope, tilted = sorted(rate.free_symbols - {Y_PARISI}, key=lambda s: s.name)
        self.value = sp.lambdify((q0, Y_PARISI, envelope), energy + envelope)
        self.slope = sp.lambdify((q0, Y_PARISI, envelope, tilted), sp.diff(energy, Y_PARISI) + rate)
        self.in_q0 = sp.lambdify((q0, Y_PARISI), sp.diff(energy, q0))

    def averages(self, q0, y):
        """E[F], E<M> and E<G>^2, with the smoothing of the run-time on one axis."""
        points = np.arange(-7.0, 7.0, 0.005) + 0.0025
        axes = (Axis(points, 32, 1.0 - q0, True),)
        table = -np.abs(points)
        found = smoothed(table, (-np.sign(points),), y, axes)
        outer = axes[0].outer
        weights = np.exp(-(outer**2) / (2.0 * q0)) / np.sqrt(2.0 * np.pi * q0) * cell(axes)
        tilted = float((found.weights(weights) * table).sum())
        return float(weights @ found.value), tilted, float(weights @ found.gradient[0] ** 2)

    def equations(self, unknowns):
        """df/dq0, in which dE[F]/dq0 at q1 = 1 is y E<G>^2/2, and df/dy."""
        q0, y = unknowns
        envelope, tilted, square = self.averages(q0, y)
        return self.in_q0(q0, y) + y * square / 2.0, self.slope(q0, y, envelope, tilted)


def test_the_spin_glass_at_one_step():
    glass = SpinGlass()
    q0, y = optimize.fsolve(glass.equations, (0.4, 1.2))
    energy = glass.value(q0, y, glass.averages(q0, y)[0])
    assert energy == pytest.approx(-0.7652594, abs=2e-6)
    assert (y, q0) == pytest.approx((1.36082, 0.476784), abs=2e-4)
    symmetric = glass.value(0.999, 1e-4, glass.averages(0.999, 1e-4)[0])
    assert symmetric == pytest.approx(-np.sqrt(2.0 / np.pi), abs=1e-4)


def test_the_block_size_goes_to_zero_with_the_temperature():
    assert (
        zero_temperature(-BETA * A * sp.log(1 + BLOCK_SIZE * BETA) / BLOCK_SIZE / BETA)
        == A * sp.log(Y_PARISI + 1) / Y_PARISI
    )


def test_second_slopes_are_those_of_the_smoothed_function():
    """Differences of the gradient along two axes, of M = |x + y/2| + x y/9, whose slopes jump."""
    y, lines = 1.7, [np.arange(-6.0, 6.0, h) for h in (0.05, 0.06)]
    axes = tuple(Axis(points, 1, variance, True) for points, variance in zip(lines, (0.8, 0.5), strict=True))
    first, second = np.meshgrid(*lines, indexing="ij")
    found = smoothed(np.abs(first + second / 2.0) + first * second / 9.0, (), y, axes)
    inside = (slice(100, 140), slice(85, 115))
    bends = second_slopes(found, y, axes)
    for i, points in enumerate(lines):
        for j in range(2):
            known = np.gradient(found.gradient[j], points, axis=i)[inside]
            assert np.abs(bends[i, j][inside] - known).max() < 2e-3 < 0.1 * np.abs(known).max()


@pytest.mark.parametrize("dim", [2, 3, 4, 5])
def test_points_on_spheres_are_exact_to_fifth_order(dim):
    points, weights = fifth_order(dim)
    at = np.random.default_rng(dim).standard_normal((dim, 4))
    at /= np.linalg.norm(at, axis=0)
    powers = [weights @ (points.T @ at) ** p for p in (0, 1, 2, 3, 4, 5)]
    known = [1.0, 0.0, 1.0 / dim, 0.0, 3.0 / (dim * (dim + 2.0)), 0.0]
    assert np.abs(np.array(powers) - np.array(known)[:, None]).max() < 1e-12
    assert (weights > 0.0).all()


def test_the_moments_of_a_ball_of_nodes_are_those_of_normals():
    zeta, weights = lattice(5, 800.0, 3)
    made_up = whole_ball(zeta, weights)
    squares = (zeta * zeta).sum(axis=0)
    assert abs(weights @ squares / 5.0 - 1.0) > 1e-2  # what is cut off matters
    assert [made_up @ squares**k for k in range(4)] == pytest.approx([1.0, 5.0, 35.0, 315.0])


def _tilted_envelopes(groups, outer):
    """Mean F of M = 6 |xi_1| over all inner nodes, and over either half of them."""
    inner = inner_nodes(3, outer, groups, 1, np.random.default_rng(groups))
    envelope = 6.0 * np.abs(inner.xi[0])
    tilt, none = inner.weights * np.exp(-envelope), np.zeros(outer)
    return [Tilted.over(tilt, none, 1.0, part, inner.weights).envelope.mean() for part in inner.parts]


def test_few_inner_nodes_without_bias_of_first_order():
    many, few = _tilted_envelopes(64, 1000)[0], _tilted_envelopes(2, 20000)
    assert few[0] - many > 3e-3
    assert abs(Cloud._without_bias(few) - many) < 0.2 * (few[0] - many)


@pytest.mark.parametrize("tokens", [2, 3])
def test_what_no_second_way_was_compared_with_is_said(tokens, monkeypatch):
    from types import SimpleNamespace

    from replicode.verbs import rsb

    solution = SimpleNamespace(order_parameters={}, warnings=())
    solution._replace = lambda **fields: SimpleNamespace(**fields)
    posed = SimpleNamespace(module=SimpleNamespace(KERNELS=(SimpleNamespace(tokens=tokens),)))
    monkeypatch.setattr(rsb, "step", lambda *_, **__: {"broken": True, "warnings": ()})
    assert (rsb.UNCOMPARED in rsb.beside_step(solution, posed, asked_for=True).warnings) == (tokens > 2)
