"""Trajectories of one-pass SGD by a second derivation: equations typed in here, brute-force nodes, SciPy's integrator.

Nothing here comes from theory/ or codegen/. Nodes run over the scores of all tokens; given these the other fields are
Gaussian, and products of up to four of them are averaged by Wick's sum. For max the teacher's scores are averaged
first, where v and v* have no overlap with k and k*.
"""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import erf, expit, ndtr

import replicode as rc
from replicode.codegen.compiler import generate
from replicode.theory.derive.dynamics import derive_dynamics

NAMES = ("m_k", "q_k", "m_v", "q_v", "kv_star", "vk_star", "kv")
TEACHER_K, TEACHER_V, K, V = range(4)


def on_diagonal(rows):
    return np.einsum("ln,lj->ljn", rows, np.eye(len(rows)))


def softmax(x):
    powers = np.exp(x - x.max(axis=0))
    s = powers / powers.sum(axis=0)
    return s, on_diagonal(s) - s[:, None] * s[None]


def raised(x):
    """A ratio with kinks above and below."""
    a, slope, total = 0.1 + np.maximum(x, 0), (x > 0) * 1.0, (0.1 + np.maximum(x, 0)).sum(axis=0)
    return a / total, on_diagonal(slope / total) - (a / total**2)[:, None] * slope[None]


ACTIVATIONS = {
    "softmax": softmax,
    "linear": lambda x: (1 + x, on_diagonal(np.ones_like(x))),
    "erf": lambda x: (1 + erf(x), on_diagonal(2 / np.sqrt(np.pi) * np.exp(-x * x))),
    "relu": lambda x: (np.maximum(x, 0), on_diagonal((x > 0) * 1.0)),
    "(0.1 + relu(x))/sum(0.1 + relu(x))": raised,
    "sigmoid": lambda x: (expit(x), on_diagonal(expit(x) * expit(-x))),
}


def normal_nodes(step):
    u = step * np.arange(-int(8 / step), int(8 / step) + 1)
    weights = np.exp(-u * u / 2)
    return u, weights / weights.sum()


def split_nodes(mean, deviation):
    """Panels of Gauss-Legendre with an edge at zero, and smaller ones around it."""
    around = deviation * np.array([-0.6, -0.15, 0.0, 0.15, 0.6])
    edges = np.unique(np.r_[mean + deviation * np.linspace(-8.5, 8.5, 6), around])
    x, w = np.polynomial.legendre.leggauss(14)
    half = np.diff(edges)[:, None] / 2
    at = (edges[:-1, None] + half * (1 + x)).ravel()
    return at, (half * w).ravel() * np.exp(-(((at - mean) / deviation) ** 2) / 2) / deviation / np.sqrt(2 * np.pi)


def product_nodes(lines):
    x, w = zip(*lines, strict=True)
    return np.array([g.ravel() for g in np.meshgrid(*x)]), np.prod([g.ravel() for g in np.meshgrid(*w)], axis=0)


def located(scores, m, q, nu):
    """E[g | chi] and E[g chi*_l | chi] of max: chi*_l is N(m chi_l/q, s^2), and token 0 the hidden one."""
    mu, s, tokens = m / q * scores, np.sqrt(1 - m * m / q), len(scores)
    if tokens == 1:
        return np.ones(scores.shape[1]), mu
    if np.isinf(nu):
        u, w = normal_nodes(0.15)
        ahead = (mu[0] - mu[1:])[:, None] / s + u[:, None]
        chance, density = ndtr(ahead), np.exp(-ahead * ahead / 2) / np.sqrt(2 * np.pi)
        slopes = [w @ (density[i] * np.delete(chance, i, axis=0).prod(axis=0)) / s for i in range(tokens - 1)]
        total = w @ chance.prod(axis=0)
        return tokens * total, tokens * (mu * total + s * s * np.array([sum(slopes), *(-e for e in slopes)]))
    u, w = normal_nodes(0.3)
    gap = (mu[0] - mu[1])[:, None] + np.sqrt(2) * s * u
    weight = 2 * expit(nu * gap) * w
    total, half = weight.sum(axis=1), (weight * gap).sum(axis=1) / 2
    return total, mu.mean(axis=0) * total + np.array([half, -half])


def averages(overlaps, act, task, tokens, nu, noise, step):
    """Pulls of k and of v along k*, v*, k, v; spreads kk, kv, vv; the risk."""
    m_k, q_k, m_v, q_v, kv_star, vk_star, kv = overlaps
    C = np.array([[1, 0, m_k, vk_star], [0, 1, kv_star, m_v], [m_k, kv_star, q_k, kv], [vk_star, m_v, kv, q_v]])
    base = np.zeros((tokens, 4))
    if task == "spiked":
        base[0] = np.sqrt(nu) * C[0]
    u, w = normal_nodes(step)
    line = split_nodes if "relu" in act else lambda mean, deviation: (mean + deviation * u, w)
    scores, weights = product_nodes([line(base[j, K], np.sqrt(q_k)) for j in range(tokens)])
    scores, weights = scores[:, weights > 1e-17], weights[weights > 1e-17]
    means = base.T[..., None] + (C[K] / q_k)[:, None, None] * (scores - base[:, K, None])
    rest = C - np.outer(C[K], C[K]) / q_k
    if task == "max":
        assert not np.any(overlaps[4:])
        total, first = located(scores, m_k, q_k, nu)
        weights, means[TEACHER_K] = weights * total, first / total
    return given_scores(*ACTIVATIONS[act](scores), means, rest, noise) @ weights


def given_scores(s, slopes, means, rest, noise):
    """The averages at every node: r, f_l and the fields have means, and covariances `rest` at the same token."""
    r = means[TEACHER_V, 0] - (s * means[V]).sum(axis=0)
    with_r = -s[None] * rest[V][:, None, None]
    with_r[:, 0] += rest[TEACHER_V][:, None]
    square = noise**2 + with_r[TEACHER_V, 0] - (s * with_r[V]).sum(axis=0)
    f, f_r = (np.einsum("ljn,ln->jn", slopes, x) for x in (means[V], with_r[V]))
    own = np.einsum("llsn->lsn", slopes[:, :, None])[:, 0]
    pulls = r * f * means + r * own * rest[V][:, None, None] + f * with_r + means * f_r
    pulls = np.r_[pulls.sum(axis=1), (s * (r * means + with_r)).sum(axis=1)]
    variance = rest[V, V] * (slopes**2).sum(axis=0)
    second = r * r + square
    kk = second * (f * f + variance) + 4 * r * f * f_r + 2 * f_r**2
    spreads = [kk.sum(axis=0), (s * (second * f + 2 * r * f_r)).sum(axis=0), (s * s * second).sum(axis=0)]
    return np.array([*pulls, *spreads, second])


def rates(o, found, rate, rate_v, lambda_k=0.0, lambda_v=0.0, batch=1.0, flow=False, spherical=False):
    kk, kv, vv = found[8:11] * (0.0 if flow else 1.0 / batch)
    d = np.array(
        [
            rate * (found[0] - lambda_k * o[0]),
            rate * (2 * found[2] + rate * kk - 2 * lambda_k * o[1]),
            rate_v * (found[5] - lambda_v * o[2]),
            rate_v * (2 * found[7] + rate_v * vv - 2 * lambda_v * o[3]),
            rate * (found[1] - lambda_k * o[4]),
            rate_v * (found[4] - lambda_v * o[5]),
            rate * (found[3] - lambda_k * o[6]) + rate_v * (found[6] - lambda_v * o[6]) + rate * rate_v * kv,
        ]
    )
    if spherical:  # what puts a norm back takes d q/2q of every overlap, for each student in it
        powers = np.array([[1, 0], [2, 0], [0, 1], [0, 2], [1, 0], [0, 1], [1, 1]])
        d -= powers @ [d[1] / (2 * o[1]), d[3] / (2 * o[3])] * o
    return d


def trajectory(act, task, lengths, nu, times, start, how, step):
    """Overlaps and risk at the times."""
    how = {"rate_v": how["rate"], **how}

    def mixed(o):
        return sum(share * averages(o, act, task, n, nu, 0.3, step) for n, share in lengths.items())

    begin = [start.get(n, 0.01 if n.startswith("q") else 0.0) for n in NAMES]
    found = solve_ivp(
        lambda _, o: rates(o, mixed(o), **how), times[[0, -1]], begin, "DOP853", times, rtol=1e-9, atol=1e-11
    )
    return found.y, np.array([mixed(o)[11] for o in found.y.T])


def averages_of_max(overlaps, act, nu, noise, step):
    """The same for max at two tokens and any overlaps, the scores of teacher and student on nodes."""
    m_k, q_k, m_v, q_v, kv_star, vk_star, kv = overlaps
    C = np.array([[1, 0, m_k, vk_star], [0, 1, kv_star, m_v], [m_k, kv_star, q_k, kv], [vk_star, m_v, kv, q_v]])
    nodes, weights = product_nodes([normal_nodes(step)] * 4)
    nodes, weights = nodes[:, weights > 1e-15], weights[weights > 1e-15]
    teacher = nodes[:2]
    scores = m_k * teacher + np.sqrt(q_k - m_k**2) * nodes[2:]
    seen = [TEACHER_K, K]
    back = C[:, seen] @ np.linalg.inv(C[np.ix_(seen, seen)])
    means = np.einsum("ai,iln->aln", back, np.array([teacher, scores]))
    weights = weights * 2 * expit(nu * (teacher[0] - teacher[1]))
    return given_scores(*ACTIVATIONS[act](scores), means, C - back @ C[seen], noise) @ weights


ON = {"m_k": 0.1, "q_k": 1.0}
OFF = {"m_k": 0.2, "q_k": 1.0, "m_v": 0.1, "q_v": 0.8, "kv_star": 0.15, "vk_star": -0.2, "kv": 0.3}
MANY = {"rate": 0.9, "rate_v": 0.6, "lambda_k": 0.1, "lambda_v": 0.2, "batch": 4}
LENGTHS = {1: 0.2, 2: 0.3, 3: 0.5}
CASES = [
    ("softmax", "max", {2: 1.0}, np.inf, 3.0, ON, {"rate": 0.5}, 0.5),
    ("relu", "spiked", {2: 1.0}, 2.0, 2.0, OFF, {"rate": 0.2}, 0.5),
    ("linear", "spiked", {2: 1.0}, 2.0, 10.0, OFF, {"rate": 0.1, "spherical": True}, 0.4),
    ("softmax", "spiked", {2: 1.0}, 2.0, 10.0, OFF, MANY, 0.5),
]
LONG = [
    ("(0.1 + relu(x))/sum(0.1 + relu(x))", "max", {2: 1.0}, np.inf, 2.0, ON, {"rate": 0.5}, 0.5),
    ("erf", "max", {2: 1.0}, 2.0, 8.0, ON, {"rate": 0.2}, 0.25),
    ("relu", "max", {2: 1.0}, np.inf, 2.0, ON, {"rate": 0.2}, 0.5),
    ("softmax", "spiked", LENGTHS, 2.0, 2.0, ON, {"rate": 0.5}, 0.5),
    ("linear", "spiked", {1: 1.0}, 2.0, 10.0, OFF, {"rate": 0.1}, 0.4),
    ("softmax", "spiked", {2: 1.0}, 2.0, 10.0, OFF, {"rate": 1.0, "flow": True}, 0.5),
    ("softmax", "max", {3: 1.0}, np.inf, 3.0, ON, {"rate": 0.5}, 0.5),
    ("erf", "max", {3: 1.0}, np.inf, 1.0, ON, {"rate": 0.2}, 0.33),
    ("linear", "max", LENGTHS, np.inf, 4.0, ON, {"rate": 0.1}, 0.5),
    ("sigmoid", "spiked", {3: 1.0}, 2.0, 4.0, OFF, {"rate": 0.5}, 0.5),
]


def name(case):
    return " ".join(map(str, case[:2])) + f" {max(case[2])} {case[3]:g} " + " ".join(case[6])


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(c, marks=pytest.mark.full) for c in LONG)], ids=name)
def test_trajectories_by_brute_force(case):
    act, task, lengths, nu, time, start, how, step = case
    tokens = ",".join(f"{n}:{p}" for n, p in lengths.items()) if len(lengths) > 1 else max(lengths)
    found = rc.dynamics(act, task=task, tokens=tokens, nu=nu, noise=0.3, time=time, start=start, points=4, **how)
    overlaps, risks = trajectory(act, task, lengths, nu, np.array(found.time), start, how, step)
    assert found.ok and found.error < 1e-6
    np.testing.assert_allclose(found.test_risk, risks, rtol=0, atol=found.error + 1e-7)
    for row, key in zip(overlaps, NAMES, strict=True):
        np.testing.assert_allclose(found.order_parameters[key], row, rtol=0, atol=found.errors[key] + 2e-7, err_msg=key)


@pytest.mark.parametrize(("act", "step"), [("softmax", 0.5), pytest.param("erf", 0.4, marks=pytest.mark.full)])
def test_rates_of_max_at_any_overlaps(act, step):
    made = generate(derive_dynamics(act, "max", 2)).load()
    at, descent = np.array([OFF[n] for n in NAMES]), {"lambda_k": 0.1, "lambda_v": 0.2, "batch": 2.0}
    world = made.World(2.0, 0.3, np.zeros(len(made.PARAMETERS)))
    expected = rates(at, averages_of_max(at, act, 2.0, 0.3, step), 0.5, 0.4, **descent)
    found = made.Motion(made.Descent(0.5, 0.4, **descent), world, 3).rates(at)
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-9)
