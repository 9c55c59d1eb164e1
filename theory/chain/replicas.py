"""The replicated partition function: overlaps, replica-symmetric matrices, the prior, and the Gaussian channel."""

from __future__ import annotations

from itertools import permutations

import sympy as sp
from sympy.combinatorics import Permutation

from replicode.theory.derive.replica import (
    BETA,
    CHANNEL_FIELD,
    CHANNEL_VARIANCE,
    CHANNEL_Z,
    MT,
    N_REPLICAS,
    QT,
    VT,
    ReplicaMatrix,
    Step,
    per_replica,
)
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.derive.spectrum import mean_of_two
from replicode.theory.model import PENALTY_WEIGHT, Block

_SIZE = 3


def replicas() -> list[Step]:
    """From Z^n to overlaps and their conjugates."""
    z, d = sp.symbols("Z_beta dim", positive=True)
    u = sp.Symbol("u", real=True)
    weights, sources = sp.symbols("theta_0 theta_a theta_b", real=True), sp.symbols("s_0 s_a s_b", real=True)
    field = sp.Add(*[s * t for s, t in zip(sources, weights)])
    return [
        Step(
            "the replica trick: the derivative of Z^n is log Z at n = 0, so the average of Z^n over the samples, for n "
            "replicas of the weights, gives that of log Z; -log Z/beta is the minimum of the objective as beta grows",
            sp.Derivative(z**N_REPLICAS, N_REPLICAS),
            z**N_REPLICAS * sp.log(z),
        ),
        Step("all integrals will be Gaussian", _gaussian(sp.S.One, u), sp.sqrt(2 * sp.pi)),
        Step(
            "the average over one coordinate u ~ N(0, 1) of a token, sources s on the teacher's field and on two "
            "replicas': completing the square; the D coordinates multiply to exp(sum_ab s_a s_b Q_ab/2) with the "
            "overlaps Q_ab = theta_a.theta_b/D, all that the samples see of the weights",
            -(u**2) / 2 + u * field / sp.sqrt(d),
            -((u - field / sp.sqrt(d)) ** 2) / 2 + field**2 / (2 * d),
        ),
        Step(
            "an overlap is fixed by a delta function, opened by a conjugate that its saddle point sets; so the "
            "conjugate Vt of a squared norm q alone weighs a weight by exp(-Vt theta^2/2), of integral sqrt(2 pi/Vt), "
            "and q is",
            -2 * sp.Derivative(sp.log(2 * sp.pi / VT) / 2, VT),
            1 / VT,
        ),
    ]


def _gaussian(factor: sp.Expr, variable: sp.Symbol) -> sp.Expr:
    return sp.Integral(factor * sp.exp(-(variable**2) / 2), (variable, -sp.oo, sp.oo))


def matrices() -> list[Step]:
    """log det, inverse, sum and trace of a I + b J, for symbolic n and at n = 3 entry by entry."""
    a, b, c, d = sp.symbols("rs_a rs_b rs_c rs_d", positive=True)
    n = N_REPLICAS
    matrix, other = ReplicaMatrix(a, b), ReplicaMatrix(c, d)
    inverse = matrix.inverse()
    at = {n: sp.Integer(_SIZE)}
    product = matrix.explicit(_SIZE) * inverse.explicit(_SIZE).subs(at)
    return [
        Step(
            f"replica symmetry: overlaps are a I + b J; the determinant at n = {_SIZE}, written out, against the "
            "eigenvalues a (n - 1 times) and a + n b",
            leibniz(matrix.explicit(_SIZE)),
            sp.exp(matrix.log_det()).subs(at),
        ),
        Step("log det of a I + b J for any n", sp.log(a ** (n - 1) * (a + n * b)), matrix.log_det()),
        Step(
            "the inverse is again of this form: off the diagonal, the product's terms balance for any n",
            a * inverse.b + n * b * inverse.b,
            -b * inverse.a,
        ),
        Step(f"and at n = {_SIZE} its diagonal is 1", product[0, 0], sp.S.One),
        Step("the sum of all entries of the inverse", inverse.sum(), sp.factor(inverse.sum())),
        Step(
            f"the trace of a product of two such matrices, written out at n = {_SIZE}",
            (matrix.explicit(_SIZE) * other.explicit(_SIZE)).trace(),
            matrix.trace_with(other).subs(at),
        ),
    ]


def leibniz(matrix: sp.Matrix) -> sp.Expr:
    """The determinant as the sum over permutations."""
    size = matrix.rows
    return sp.Add(
        *[
            Permutation(list(p)).signature() * sp.Mul(*[matrix[i, j] for i, j in enumerate(p)])
            for p in permutations(range(size))
        ]
    )


def prior(system: SaddleSystem) -> list[Step]:
    """The replicated prior integral, n -> 0, beta -> infinity, for both blocks."""
    if system.model.structured:
        return structured_prior(system)
    block, *others = system.model.blocks
    first = system.priors[block.name]
    theta, h = sp.Symbol("theta", real=True), sp.Symbol("h", real=True)
    a, variance = sp.symbols("rs_a h_var", positive=True)
    (ridge,) = sp.solve(first.precision.a - a, block.strength)
    determinant = sp.exp(first.precision.log_det()) * (1 - first.coupling)
    teacher = sp.Matrix(
        sp.BlockMatrix([[sp.ones(1), -MT * sp.ones(1, 2)], [-MT * sp.ones(2, 1), first.precision.explicit(2)]])
    )
    steps = [
        Step(
            "a replica's weight, with a = beta lambda + Vt, in the field h = mt theta* + sqrt(qt) xi that decouples "
            "the replicas (exp(qt (sum_a theta_a)^2/2) is the average of exp(sqrt(qt) xi sum_a theta_a)): completing "
            "the square, its integral is sqrt(2 pi/a) exp(h^2/(2 a))",
            -a * theta**2 / 2 + h * theta,
            -a * (theta - h / a) ** 2 / 2 + h**2 / (2 * a),
        ),
        Step(
            "the n-th power of it averaged over h ~ N(0, h_var), h_var = mt^2 + qt: the exponents add, and the average "
            "is (2 pi/a)^(n/2) (1 - n h_var/a)^(-1/2)",
            N_REPLICAS * h**2 / (2 * a) - h**2 / (2 * variance),
            -(1 - N_REPLICAS * variance / a) * h**2 / (2 * variance),
        ),
        Step(
            "the same as one Gaussian integral over the teacher and n replicas: its determinant at n = 2, written out, "
            "against det(a I + b J) (1 - coupling to the teacher)",
            leibniz(teacher),
            determinant.subs(N_REPLICAS, 2),
        ),
        Step(
            "and for any n, against the average over h",
            determinant.subs(block.strength, ridge),
            a**N_REPLICAS * (1 - N_REPLICAS * (MT**2 + QT) / a),
        ),
    ]
    limits = _prior_limits(system, block)
    steps += limits
    for b in others:
        names = block.renaming(b)
        steps += [Step(f"the same for {b.name}", s.lhs.xreplace(names), s.rhs.xreplace(names)) for s in limits]
    return steps


def structured_prior(system: SaddleSystem) -> list[Step]:
    """The prior coordinate by coordinate in whitened weights, and its mean over the coordinates."""
    return [step for block in system.model.blocks for step in _structured_block(system, block)]


def _structured_block(system: SaddleSystem, block: Block) -> list[Step]:
    prior, model = system.priors[block.name], system.model
    theta, u, h = sp.symbols("theta u h", real=True)
    a = sp.Symbol("rs_a", positive=True)
    integral = prior.replicated - prior.legendre
    free = -prior.scaled / BETA
    spectral = prior.spectral
    assert spectral is not None
    return [
        Step(
            f"structured tokens ({block.name}): a coordinate of eigenvalue s_i has the whitened weight u = sqrt(s_i) "
            "theta, in which the tokens are isotropic and the penalty lambda p_i theta^2/2 is",
            model.penalty_curvature(block) * PENALTY_WEIGHT * theta**2 / 2,
            (model.whitened_curvature(block) * u**2 / 2).subs(u, sp.sqrt(model.covariance) * theta),
        ),
        Step(
            "a replica's weight in the field h of the teacher and of the noise: completing the square",
            -a * u**2 / 2 + h * u,
            -a * (u - h / a) ** 2 / 2 + h**2 / (2 * a),
        ),
        Step(
            f"n -> 0 ({block.name}): the derivative in n of one coordinate's log(replicated prior), the teacher's "
            "coordinate being given, and of the Legendre terms; what carries a factor n vanishes",
            sp.Derivative(integral + prior.legendre, N_REPLICAS),
            _with_replica_remainder(integral, prior.legendre),
        ),
        Step(
            f"beta -> infinity ({block.name}): minus that per unit of beta; the bracket over beta vanishes",
            free,
            _with_thermal_remainder(free, spectral.coordinate),
        ),
        Step(
            f"the mean over the coordinates ({block.name}), here two: it falls on tau and kappa",
            mean_of_two(spectral.coordinate),
            prior.value,
        ),
    ]


def _prior_limits(system: SaddleSystem, block: Block) -> list[Step]:
    prior = system.priors[block.name]
    a = sp.Symbol("rs_a", positive=True)
    (ridge,) = sp.solve(prior.precision.a - a, block.strength)
    integral, legendre = (prior.replicated - prior.legendre).subs(block.strength, ridge), prior.legendre
    free = -prior.scaled / BETA
    return [
        Step(
            f"n -> 0 ({block.name}): the derivative in n of log(replicated prior) + Legendre terms of the overlaps "
            f"({block.V}/beta) I + {block.q} J, with a = beta {block.strength} + Vt; what carries a factor n vanishes",
            sp.Derivative(integral + legendre, N_REPLICAS),
            _with_replica_remainder(integral, legendre),
        ),
        Step(
            f"beta -> infinity ({block.name}): with mt = beta mh, Vt = beta Vh, qt = beta^2 qh, minus that per unit of "
            "beta; the bracket over beta vanishes",
            free,
            _with_thermal_remainder(free, prior.value),
        ),
    ]


def _with_replica_remainder(*parts: sp.Expr) -> sp.Expr:
    """The derivative in n of a sum of parts: its value at n = 0, and n times a remainder."""
    total = sp.S.Zero
    for part in parts:
        rate = sp.diff(part, N_REPLICAS)
        limit = per_replica(part)
        total += limit + N_REPLICAS * sp.factor((rate - limit) / N_REPLICAS)
    return total


def _with_thermal_remainder(free: sp.Expr, value: sp.Expr) -> sp.Expr:
    """value + remainder/beta."""
    remainder = sp.logcombine(sp.expand(sp.simplify(BETA * (free - value))), force=True)
    return sp.Add(value, sp.Mul(1 / BETA, remainder, evaluate=False))


def gaussian_channel(system: SaddleSystem) -> list[Step]:
    """Both rules of the channel where the replicated average is a determinant."""
    channel = system.gaussian
    curvature = sp.diff(channel.objective, CHANNEL_Z, 2)
    (rest,) = sp.solve(sp.diff(channel.objective, CHANNEL_Z), CHANNEL_Z)
    free = -channel.entropy / BETA
    u = sp.Symbol("u", real=True)
    typical = channel.minimum.subs(CHANNEL_FIELD, sp.sqrt(CHANNEL_VARIANCE))
    return [
        Step(
            "one token with sigma = 1: the replicated average is det^(-1/2), here the determinant at n = 2 written out",
            leibniz(channel.precision.explicit(2)),
            sp.exp(channel.precision.log_det()).subs(N_REPLICAS, 2),
        ),
        Step(
            "n -> 0 exactly: the derivative of its logarithm; what carries a factor n vanishes",
            sp.Derivative(channel.replicated, N_REPLICAS),
            _with_replica_remainder(channel.replicated),
        ),
        Step(
            "beta -> infinity exactly; the bracket over beta vanishes",
            free,
            _with_thermal_remainder(free, channel.exact),
        ),
        Step(
            "rule Laplace: the objective around its minimum M over z; the integral of exp(-beta objective) is "
            "exp(-beta M) times a factor that does not grow exponentially with beta",
            channel.objective,
            channel.minimum + curvature * (CHANNEL_Z - rest) ** 2 / 2,
        ),
        Step(
            "rule n -> 0 (the average of Z^n is 1 + n times that of log Z): the average of M over u_w = sqrt(d_w) u is "
            "the exact result; from here on both rules are used for every activation, and E[M] stands for the average "
            "of the envelope M",
            typical * _gaussian(u**2, u) / sp.sqrt(2 * sp.pi),
            channel.exact,
        ),
    ]
