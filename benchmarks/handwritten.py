"""The prox-free averages of softmax at two tokens, written by hand in NumPy and in C for exactly this case.

Both take what ProxFreeChannel holds (nodes, weights, centre, scale, frame) and return its sums in its order.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from replicode.codegen.compiled.native import FLAGS, compiler

BLOCK = 16384


def folded(weight, pivot):
    """The folded mass, if anything folds."""
    return 0.0 if pivot.min() > 0.0 else np.abs(weight[pivot <= 0.0]).sum()


def numpy_sums(channel, order, frame):
    """In the difference d of the two scores, p = sigma(d): one exponential, every derivative in closed form."""
    v_k, v_v = order[2], order[5]
    center, scale, pull = channel.center[0], channel.scale[0], frame.pull[0, 0]
    offset = frame.origin[0] - frame.origin[1]
    width = frame.span[0, 0] - frame.span[1, 0]
    f0, f1 = frame.law.score_factor[:, 0]
    values = frame.law.value_factor
    total = np.zeros(14)
    for begin in range(0, channel.weights.size, BLOCK):
        b = slice(begin, begin + BLOCK)
        t = channel.zeta[0, b]
        w0, w1, y = values @ channel.zeta[1:, b]
        u = center + scale * t
        p = 1.0 / (1.0 + np.exp(-(offset + width * u)))
        q = 1.0 - p
        pq, c = p * q, p - q
        delta = w0 - w1
        r = y - w1 - p * delta
        inverse = 1.0 / (1.0 + v_v * (1.0 - 2.0 * pq))
        g = r * inverse
        gg = 0.5 * g * g
        half = v_v * gg
        u1 = pq * delta
        n1 = 2.0 * pq * c
        slope = -g * u1 - half * n1
        u2 = -c * u1
        n2 = 4.0 * pq * pq - c * n1
        bend = inverse * (u1 + v_v * g * n1) ** 2 - g * u2 - half * n2
        tau = u - v_k * pull * slope
        pivot = 1.0 + 2.0 * v_k * bend
        weight = channel.weights[b] * scale * np.exp(0.5 * (t * t - tau * tau)) * pivot
        ws = weight * slope
        wg = weight * g
        z0, z1 = p * wg, q * wg
        square = ws @ slope
        total += [
            -ws.sum(),
            -f0 * (ws @ tau),
            f1 * (ws @ tau),
            square,
            square,
            z0 @ w0,
            z0 @ y,
            z1 @ w1,
            z0 @ (p * g),
            z1 @ (q * g),
            0.5 * (wg @ r),
            weight @ gg,
            weight.sum(),
            folded(weight, pivot),
        ]
    return total


C = r"""
#include <math.h>
extern double exp(double) __attribute__((simd("notinbranch"), const, nothrow));
void sums(long n, const double *restrict zeta, const double *restrict weights, const double *k, double *total)
{
    const double center = k[0], scale = k[1], pull = k[2], offset = k[3], width = k[4], f0 = k[5], f1 = k[6];
    const double v_k = k[7], v_v = k[8], a0 = k[9], b0 = k[10], a1 = k[11], b1 = k[12], a2 = k[13], b2 = k[14];
    double m0 = 0, m1 = 0, m2 = 0, m3 = 0, m4 = 0, m5 = 0, m6 = 0, m7 = 0, m8 = 0, m9 = 0, m10 = 0, m11 = 0;
    #pragma omp simd reduction(+:m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11)
    for (long i = 0; i < n; i++) {
        const double t = zeta[i], s1 = zeta[n + i], s2 = zeta[2*n + i];
        const double w0 = a0*s1 + b0*s2, w1 = a1*s1 + b1*s2, y = a2*s1 + b2*s2, u = center + scale*t;
        const double p = 1.0/(1.0 + exp(-(offset + width*u))), q = 1.0 - p, pq = p*q, c = p - q, delta = w0 - w1;
        const double r = y - w1 - p*delta, inverse = 1.0/(1.0 + v_v*(1.0 - 2.0*pq)), g = r*inverse, gg = 0.5*g*g;
        const double half = v_v*gg, u1 = pq*delta, n1 = 2.0*pq*c, slope = -g*u1 - half*n1;
        const double bent = u1 + v_v*g*n1, bend = inverse*bent*bent + g*c*u1 - half*(4.0*pq*pq - c*n1);
        const double tau = u - v_k*pull*slope, pivot = 1.0 + 2.0*v_k*bend;
        const double weight = weights[i]*scale*exp(0.5*(t*t - tau*tau))*pivot, ws = weight*slope, wg = weight*g;
        m0 -= ws; m1 += ws*tau; m2 += ws*slope; m3 += p*wg*w0; m4 += p*wg*y; m5 += q*wg*w1;
        m6 += p*wg*p*g; m7 += q*wg*q*g; m8 += 0.5*wg*r; m9 += weight*gg; m10 += weight;
        m11 += pivot > 0.0 ? 0.0 : fabs(weight);
    }
    const double found[14] = {m0, -f0*m1, f1*m1, m2, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11};
    for (int j = 0; j < 14; j++) total[j] = found[j];
}
"""


def c_sums():
    """The same compiled with the flags of the fast emitter."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "k.c", Path(folder) / "k.so"
        source.write_text(C)
        subprocess.run([*compiler(), *FLAGS, str(source), "-o", str(library), "-lmvec", "-lm"], check=True)
        loop = ctypes.CDLL(str(library)).sums
    pointer = ctypes.POINTER(ctypes.c_double)

    def sums(channel, order, frame):
        width, offset = frame.span[0, 0] - frame.span[1, 0], frame.origin[0] - frame.origin[1]
        head = [channel.center[0], channel.scale[0], frame.pull[0, 0], offset, width, *frame.law.score_factor[:, 0]]
        constants = np.array([*head, order[2], order[5], *frame.law.value_factor.ravel()])
        total = np.empty(14)
        arrays = channel.zeta, channel.weights, constants, total
        loop(ctypes.c_long(channel.weights.size), *(a.ctypes.data_as(pointer) for a in arrays))
        return total

    return sums
