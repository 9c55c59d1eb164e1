"""The common way to solve the saddle-point equations, at two tokens: sampled fields and a prox per sample.

`Unreduced` averages over all five Gaussian fields, two scores, two values and the label, with no reduction and the
prox by vectorised Newton, followed from one iteration to the next; `seconds_per_prox` times the same prox by
scipy.optimize on a few samples.
"""

from __future__ import annotations

import time

import numpy as np
from scipy import optimize


class Unreduced:
    """A channel on nodes in (w_chi_1, w_chi_2, w_z_1, w_z_2, y)."""

    name = "unreduced"

    def __init__(self, module, log2_count, seed, setting):
        self.module, self.setting = module, setting
        self.zeta, self.weights = module.sobol(5, log2_count, seed)
        self.chi = None

    def fields(self, order):
        m_k, q_k, _, m_v, q_v, _ = order
        a, b, c, d, e = self.zeta
        nu, noise = self.setting.nu, self.setting.noise
        w_chi = np.stack([m_k * np.sqrt(nu) + np.sqrt(q_k) * a, np.sqrt(q_k) * b])
        w_z = np.sqrt(q_v) * np.stack([c, d])
        y = m_v / q_v * w_z[0] + np.sqrt(max(1.0 + noise**2 - m_v**2 / q_v, 1e-12)) * e
        return self.module.Fields(w_chi, w_z, y)

    def averages(self, order, search=False):
        module = self.module
        at = self.fields(order)
        start = at.w_chi if self.chi is None else self.chi
        self.chi, failed = module.prox(start, at, (float(order[2]), float(order[5])), self.setting)
        terms = module._integrands(order, self.setting, at, self.chi) @ self.weights
        return module.Averages(terms[:6], float(terms[6]), float(terms[7]), 1.0, 0.0, failed / self.weights.size)


def sobol_solve(module, log2_count, seed, point, start, reduced):
    """Test risk and number of iterations of the accelerated fixed point on one set of Sobol nodes."""
    setting = module.Setting(point["nu"], point["noise"], module.parameter_values({}))
    problem = module.Problem(point["alpha"], point["lambda_k"], point["lambda_v"])
    if reduced:
        dim = sum(module.dimensions(setting))
        channel = module.ProxChannel(module.sobol(dim, log2_count, seed), setting)
        channel.chi = module.fields(module.field_factor(start, setting), channel.zeta).w_chi
    else:
        channel = Unreduced(module, log2_count, seed, setting)
    found = module.iterate(channel, start, problem, 1e-6)
    m_k, q_k, _, m_v, q_v, _ = found.last.order
    return module.population_risk(m_k, q_k, m_v, q_v, point["nu"], point["noise"]), found.iterations


def seconds_per_prox(module, order, setting, samples=30):
    """Mean time of scipy.optimize.minimize on one sample's prox, as it is usually written: in (chi, z), no gradient."""
    at = Unreduced(module, 10, 1, setting).fields(order)
    v_k, v_v = order[2], order[5]

    def objective(point, w_chi, w_z, y):
        chi, z = point[:2], point[2:]
        weights = np.exp(chi - chi.max())
        residual = y - weights @ z / weights.sum()
        far, apart = chi - w_chi, z - w_z
        return far @ far / (2.0 * v_k) + apart @ apart / (2.0 * v_v) + 0.5 * residual**2

    begin = time.process_time()
    for n in range(samples):
        fields = at.w_chi[:, n], at.w_z[:, n], at.y[n]
        optimize.minimize(objective, np.concatenate(fields[:2]), args=fields)
    return (time.process_time() - begin) / samples


def damped_iterations(module, log2_count, point, start):
    """How many steps, damped by half and not accelerated, the fixed point takes to a residual of 1e-4."""
    setting = module.Setting(point["nu"], point["noise"], module.parameter_values({}))
    problem = module.Problem(point["alpha"], point["lambda_k"], point["lambda_v"])
    channel, order, count = Unreduced(module, log2_count, 1, setting), start, 1
    while count < 500 and (now := module.evaluate(channel, order, problem)).residual > 1e-4:
        order, count = 0.5 * (order + now.image), count + 1
    return count
