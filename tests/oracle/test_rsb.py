"""One step of breaking by a second derivation: equations typed in from the free energy, grids and nodes of its own.

Nothing but the start and the iteration comes from theory/ or codegen/. Softmax, spiked. At two tokens the envelope
M(tau, a, b), of the difference of scores and of y less either value, is tabulated by a scan and Newton's method on
grids that are shifted at random; at three the averages at given order parameters are taken over Sobol nodes, and around
each of them over others.
"""

import numpy as np
import pytest
from generated import step_module_of
from scipy.special import expit
from scipy.stats import norm, qmc

NAMES = ("m_k", "q0_k", "q1_k", "V_k", "m_v", "q0_v", "q1_v", "V_v")
SCAN = np.concatenate([np.linspace(-40, -12, 15), np.linspace(-11, 11, 89), np.linspace(12, 40, 15)])


def loss(tau, a, b, V_v):
    """The loss without the values, its two slopes in tau, and r, p, N."""
    p = expit(tau)
    p1, e, N = p * (1 - p), p * a + (1 - p) * b, p * p + (1 - p) ** 2
    p2, D = p1 * (1 - 2 * p), 1 + V_v * N
    e1, e2, N1 = (a - b) * p1, (a - b) * p2, 2 * (2 * p - 1) * p1
    N2 = 4 * p1 * p1 + 2 * (2 * p - 1) * p2
    slope = e * e1 / D - e * e * V_v * N1 / (2 * D * D)
    bend = (e1 * e1 + e * e2) / D - 2 * e * e1 * V_v * N1 / D**2 - e * e * V_v * N2 / (2 * D**2)
    return e * e / (2 * D), slope, bend + e * e * V_v**2 * N1**2 / D**3, e / D, p, N


def prox(w, a, b, V, V_v):
    """The lowest tau at all of w (rows) and (a, b) (columns), and M there."""
    row = loss(SCAN[:, None], a, b, V_v)[0]
    tau = np.array([SCAN[(row + ((SCAN - x) ** 2 / (4 * V))[:, None]).argmin(axis=0)] for x in w])
    w = w[:, None]

    def value(t):
        return (t - w) ** 2 / (4 * V) + loss(t, a, b, V_v)[0]

    best = value(tau)
    for _ in range(8):
        _, slope, bend, *_ = loss(tau, a, b, V_v)
        curved = 1 / (2 * V) + bend
        move = -((tau - w) / (2 * V) + slope) / np.where(curved > 1e-3, curved, np.abs(curved) + 1 / (2 * V))
        move = np.clip(move, -0.35, 0.35)
        there = tau + move
        there = np.where(value(there) <= best, there, tau + move / 4)
        found = value(there)
        tau, best = np.where(found <= best, there, tau), np.minimum(found, best)
    return tau, best


class Own:
    """The equations of one step on one shifted grid, of steps `h` in standard deviations of the noise."""

    def __init__(self, physics, order, h, seed):
        self.alpha, self.nu, self.noise, self.penalties = *physics[:3], physics[3:]
        m, _, q1, _, m_v, _, q1_v, _ = order
        S, rng = 1 + self.noise**2, np.random.default_rng(seed)
        noises = 2 * (q1 - order[1]), q1_v - order[5], 1.28 * (q1_v - order[5])
        self.steps = [h * np.sqrt(d) for d in noises]
        centres = (m * np.sqrt(self.nu), 2 * q1), (0.0, S - 2 * m_v + q1_v), (0.0, S + q1_v)
        self.axes = []
        for (mean, variance), step in zip(centres, self.steps, strict=True):
            count = int(np.ceil(5.2 * np.sqrt(variance) / step))
            self.axes.append(mean + step * (np.arange(-count, count + 1) + rng.random()))
        self.kept = None

    def table(self, V, V_v):
        if self.kept is None or self.kept[0] != (V, V_v):
            a, b = (g.ravel() for g in np.meshgrid(*self.axes[1:], indexing="ij"))
            shape = [len(x) for x in self.axes]
            self.kept = (V, V_v), *(x.reshape(shape) for x in prox(self.axes[0], a, b, V, V_v))
        return self.kept[1:]

    def smooth(self, values, variances, sloped=None, back=False):
        for i, (x, h, d) in enumerate(zip(self.axes, self.steps, variances, strict=True)):
            gap = x[None] - x[:, None]
            kernel = h * np.exp(-gap * gap / (2 * d)) / np.sqrt(2 * np.pi * d) * (gap / d if i == sloped else 1)
            values = np.moveaxis(np.tensordot(kernel.T if back else kernel, values, (1, i)), 0, i)
        return values

    def at(self, order, y):
        """The order parameters after one step of the equations, the complexity and the energy."""
        m, q0, q1, V, m_v, q0_v, q1_v, V_v = order
        S, alpha, root = 1 + self.noise**2, self.alpha, np.sqrt(self.nu)
        tau, M = self.table(V, V_v)
        noise, tilt = (2 * (q1 - q0), *(q1_v - q0_v,) * 2), np.exp(-y * M)
        Z = np.maximum(self.smooth(tilt, noise), 1e-300)
        F_t, F_a, F_b = (-self.smooth(tilt, noise, i) / (y * Z) for i in range(3))
        w, a, b = np.meshgrid(*self.axes, indexing="ij", sparse=True)
        law = np.array([[S - 2 * m_v + q0_v, S - m_v], [S - m_v, S + q0_v]])
        inverse = np.linalg.inv(law)
        away = w - m * root
        form = away**2 / (2 * q0) + inverse[0, 0] * a * a + 2 * inverse[0, 1] * a * b + inverse[1, 1] * b * b
        outer = np.exp(-form / 2)
        outer /= outer.sum()
        spread = tilt * self.smooth(outer / Z, noise, back=True)
        _, _, _, r, _, N = loss(tau, a, b, V_v)
        G = (tau - w) / (2 * V)

        def mean(values):
            return float((outer * values).sum())

        eM, G_k, G_v, rr = (float((spread * x).sum()) for x in (M, 2 * G * G, r * r * N, r * r))
        label = (S - m_v) * (inverse[0, 0] * a + inverse[0, 1] * b) + S * (inverse[1, 0] * a + inverse[1, 1] * b)
        yG, hidden, other = mean(label * F_a), mean((label - a) * F_a), mean((label - b) * F_b)
        det = S * q0_v - m_v**2
        blocks = (
            (-root * mean(F_t), mean(away * F_t) / q0, 2 * mean(F_t**2), G_k),
            (
                (q0_v * yG - m_v * hidden) / det,
                -(S * hidden - m_v * yG) / det - other / q0_v,
                mean(F_a**2 + F_b**2),
                G_v,
            ),
        )
        updated, free, slope = [], -alpha * mean(np.log(Z)) / y, alpha * (mean(np.log(Z)) / y + eM) / y
        for (mh, Vh, h0, h1), penalty, (m, q0, q1, V) in zip(
            blocks, self.penalties, (order[:4], order[4:]), strict=True
        ):
            new = 1 / (penalty + alpha * Vh + alpha * y * (h1 - h0))
            B = 1 / new - alpha * y * (h1 - h0)
            q = (alpha**2 * mh**2 + alpha * h0) / B**2
            updated += [alpha * mh / B, q, q + (1 / B - new) / y, new]
            d, wide = q1 - q0, V + y * (q1 - q0)
            free += penalty * q1 / 2 - (q0 - m**2) / (2 * wide) - np.log(wide / V) / (2 * y)
            slope += (q0 - m**2) * d / (2 * wide**2) + np.log(wide / V) / (2 * y**2) - d / (2 * y * wide)
        return np.array(updated), y * y * slope, free + y * slope, rr / 2


class AsStep:
    """These equations for the iteration of the run-time in the order parameters and y."""

    def __init__(self, own, module):
        self.own, self.module = own, module

    def adapt(self, order):
        return self

    def members(self):
        return []

    def at(self, order, y):
        updated, complexity, energy, train_loss = self.own.at(order, y)
        free_energy = energy - complexity / y
        return self.module.Evaluated(order, y, train_loss, None, updated, free_energy, complexity / y**2)


def near(module, physics, found):
    """Where to start from: the solution found, and states next to it, on one grid of the run-time."""
    task = module._task(*physics, {})
    step = module.Step(task.problem, task.settings, module.FINER_LEVELS[0])
    order = np.array([found.order_parameters[n] for n in NAMES])
    ends = [module._Known(*module.states_at(step, order, y, None)) for y in (1.06 * found.y, found.y)]
    return module._Sides(ends[1], ends[0]).balanced


def risk(found, nu, noise):
    x, w = np.polynomial.hermite_e.hermegauss(100)
    p = expit(found["m_k"] * np.sqrt(nu) + np.sqrt(2 * found["q1_k"]) * x)
    A, B = (w @ f / w.sum() for f in (p, p * p + (1 - p) ** 2))
    return 1 + noise**2 - 2 * found["m_v"] * A + found["q1_v"] * B


POINTS = [
    (3.0, 1.0, 0.3, 0.02, 0.02),
    (4.0, 0.5, 0.3, 0.02, 0.02),
    (3.0, 0.5, 0.3, 0.05, 0.05),
    (3.0, 0.5, 0.3, 0.02, 0.05),
]
NEXT_TO_THE_EDGE = (3.0, 0.5, 0.3, 0.1, 0.1)  # q1_k - q0_k is 3 % of q1_k there


@pytest.mark.parametrize(
    ("physics", "h", "sets", "quick"),
    [
        ((3.0, 0.5, 0.3, 0.02, 0.02), 0.6, 2, True),
        *(pytest.param(p, 0.4, 4, False, marks=pytest.mark.full) for p in POINTS),
        pytest.param(NEXT_TO_THE_EDGE, 0.8, 3, False, marks=pytest.mark.full),
    ],
)
def test_equilibrium_of_two_tokens(physics, h, sets, quick):
    module = step_module_of("softmax")
    assert module.STEP_NAMES == NAMES
    found = module.solve(*physics, quick=quick)
    assert found.converged and found.broken
    values = {**found.order_parameters, **{n: getattr(found, n) for n in ("y", "energy", "train_loss", "test_risk")}}
    start, rows = near(module, physics, found), []
    for seed in range(sets):
        own = start.on(AsStep(Own(physics, list(found.order_parameters.values()), h, seed), module))
        assert own.residual < 1e-4 and abs(own.missed) < 3e-3
        rest = own.at_rest
        row = dict(zip(NAMES, rest.order, strict=True)) | {"y": rest.y, "energy": own.states.energy}
        rows.append(row | {"train_loss": own.states.averages, "test_risk": risk(row, *physics[1:3])})
    for name, value in values.items():
        given = [row[name] for row in rows]
        apart = abs(np.mean(given) - value)
        assert apart < found.errors[name] + 3 * np.std(given, ddof=1) / np.sqrt(sets), (name, given, value)


PLANE = np.array([[2**-0.5, 6**-0.5], [-(2**-0.5), 6**-0.5], [0.0, -2 * 6**-0.5]])
FANNED = np.array([[r * np.cos(a), r * np.sin(a)] for r in (0.25, 0.55, 0.9) for a in np.arange(0.1, 6.2, np.pi / 8)])


def loss_of_three(t, u, V_v):
    """The loss without the values at scores PLANE t, its slope and Hessian in t, r and p; u is y less the values."""
    p = np.exp(t @ PLANE.T)
    p /= p.sum(axis=1, keepdims=True)
    e, N = (p * u).sum(1)[:, None], (p * p).sum(1)[:, None]
    D, de, dN = 1 + V_v * N, p * (u - e), 2 * p * (p - N)
    slope = e * de / D - V_v * e * e * dN / (2 * D * D)
    q = p[:, :, None] * (np.eye(3) - p[:, None])
    e2 = q * (u - e)[:, :, None] - p[:, :, None] * de[:, None]
    N2 = 2 * q * (2 * p - N)[:, :, None] - 2 * p[:, :, None] * dN[:, None]
    e, D = e[..., None], D[..., None]
    mixed = de[:, :, None] * dN[:, None]
    bend = (de[:, :, None] * de[:, None] + e * e2) / D - V_v * e * (mixed + mixed.transpose(0, 2, 1)) / D**2
    bend += e**2 * V_v * (V_v * dN[:, :, None] * dN[:, None] / D**3 - N2 / (2 * D**2))
    e, D = e[:, 0, 0], D[:, 0, 0]
    return e * e / (2 * D), slope @ PLANE, np.einsum("ik,nij,jl->nkl", PLANE, bend, PLANE), e / D, p


def descended(t, w, u, V, V_v):
    """Newton's method with the Hessian made positive, and steps that shrink where they climb."""

    def value(t):
        return ((t - w) ** 2).sum(1) / (2 * V) + loss_of_three(t, u, V_v)[0]

    best, reach = value(t), np.ones(len(t))
    for _ in range(25):
        _, slope, bend, *_ = loss_of_three(t, u, V_v)
        curves, turned = np.linalg.eigh(bend + np.eye(2) / V)
        along = np.einsum("nij,ni->nj", turned, slope + (t - w) / V) / np.maximum(np.abs(curves), 0.02 / V)
        there = t - reach[:, None] * np.einsum("nij,nj->ni", turned, along)
        found = value(there)
        lower = found <= best
        t, best = np.where(lower[:, None], there, t), np.minimum(found, best)
        reach = np.where(lower, np.minimum(2 * reach, 1), reach / 4)
    return t, best


def prox_of_three(w, u, V, V_v):
    """From the field, and from the lowest of many points around it."""
    t, best = descended(w, w, u, V, V_v)
    reach, lowest, start = np.sqrt(2 * V * best)[:, None], np.full(len(w), np.inf), w
    for x in FANNED:
        there = w + reach * x
        value = loss_of_three(there, u, V_v)[0] + (reach[:, 0] ** 2 * (x @ x)) / (2 * V)
        start, lowest = np.where((value < lowest)[:, None], there, start), np.minimum(value, lowest)
    other, found = descended(start, w, u, V, V_v)
    return np.where((found < best)[:, None], other, t), np.minimum(found, best)


def averages_of_three(order, y, nu, noise, outer, inner, seed):
    """E<M>, E<|G|^2> and E|<G>|^2 of scores and of values, E<r^2>/2, and E<G> along the hidden token."""
    m, q0, q1, V, m_v, q0_v, q1_v, V_v = order
    o = norm.ppf(qmc.Sobol(7, seed=seed).random(outer))
    xi = norm.ppf(
        (qmc.Sobol(5, seed=seed + 1).random(inner)[None] + qmc.Sobol(5, seed=seed + 2).random(outer)[:, None]) % 1
    )
    w0, label = m * np.sqrt(nu) * PLANE[0] + np.sqrt(q0) * o[:, :2], o[:, 2] + noise * o[:, 3]
    z0 = np.c_[m_v * o[:, 2] + np.sqrt(q0_v - m_v**2) * o[:, 4], np.sqrt(q0_v) * o[:, 5:]]
    w = (w0[:, None] + np.sqrt(q1 - q0) * xi[:, :, :2]).reshape(-1, 2)
    u = (label[:, None, None] - z0[:, None] - np.sqrt(q1_v - q0_v) * xi[:, :, 2:]).reshape(-1, 3)
    t, M = prox_of_three(w, u, V, V_v)
    _, _, _, r, p = loss_of_three(t, u, V_v)
    M, r, G, G_v = (x.reshape(outer, inner, *x.shape[1:]) for x in (M, r, (t - w) / V, r[:, None] * p))
    tilt = np.exp(-y * (M - M.min(axis=1, keepdims=True)))
    tilt /= tilt.sum(axis=1, keepdims=True)
    mean, mean_v = (np.einsum("oi,oik->ok", tilt, x) for x in (G, G_v))
    inside = [(tilt * x).sum(axis=1) for x in (M, (G**2).sum(2), (G_v**2).sum(2), r * r / 2)]
    rows = [*inside, (mean**2).sum(1), (mean_v**2).sum(1), mean @ PLANE[0]]
    return np.mean(rows, axis=1)


@pytest.mark.full
def test_averages_of_three_tokens():
    """At the order parameters of alpha 3, nu 1, noise 0.3, lambda 0.02; not E[F], which 64 inner nodes bias by 1 %."""
    order, y = np.array([0.597, 2.251, 4.592, 4.725, 1.124, 2.118, 2.864, 1.596]), 4.85
    module = step_module_of("softmax", tokens=3)
    task = module._task(3.0, 1.0, 0.3, 0.02, 0.02, parameters={})
    step = module.Step(task.problem, task.settings, module.NESTED_LEVELS[1]).adapt(order)

    def row(evaluated):
        a, c = evaluated.averages, dict(zip(module.STEP_CONJUGATES, evaluated.conjugates / 3.0, strict=True))
        return np.array([a.tilted, *a.squares, a.train_loss, c["qh0_k"], c["qh0_v"], c["mh_k"]])

    drawn = np.array([row(m.at(order, y)) for m in step.members()])
    own = np.array([averages_of_three(order, y, 1.0, 0.3, 512, 64, seed) for seed in range(0, 40, 5)])
    errors = np.hypot(*(np.std(x, axis=0, ddof=1) / np.sqrt(len(x)) for x in (drawn, own)))
    assert (np.abs(drawn.mean(axis=0) - own.mean(axis=0)) < 4 * errors + 2e-3 * np.abs(own.mean(axis=0))).all()
    assert (errors < 0.03 * np.abs(own.mean(axis=0))).all()
