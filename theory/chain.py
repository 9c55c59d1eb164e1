"""The derivation written down: the chain from the replicated partition function to the saddle-point equations.

Every `Step` is an exact identity of two expressions in SymPy's own functions and plain symbols, so that anyone can
evaluate both sides at random points; where a limit is taken, what it drops is written out. All of it is read off the
`SaddleSystem`: the algebra of replicas is checked at explicit sizes, the activation at explicit tokens, Price's and
Stein's theorems on exp(t.w), whose averages are closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations

import sympy as sp
from sympy.combinatorics import Permutation

from theory.channel import AMPLITUDE, N, U
from theory.gaussian import FieldLaw
from theory.location import location
from theory.model import (
    ALPHA,
    BLOCKS,
    CHI_STAR,
    LAMBDA,
    LAMBDAS,
    MH,
    NOISE,
    ORDER_PARAMETERS,
    QH,
    RESIDUAL,
    VH,
    M,
    Q,
    V,
    Y,
)
from theory.nodes import L, W, X
from theory.notation import average, builtin, parameter_symbols
from theory.optimum import best_value
from theory.population import BIAS_IDLE, CROSS_OVERLAPS, SIGMA_EPS, SIGMA_IDLE, A, B, PopulationSystem
from theory.replica import (
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
    block_renaming,
    per_replica,
)
from theory.saddle import (
    HIDDEN,
    IDLE,
    ChannelAverage,
    E,
    SaddleSystem,
    TokenFields,
    conjugate_of,
    given_fields,
    is_field,
    joint_laws,
)
from theory.task import Task
from theory.tokens import Definition, OuterProducts

SIGMA_W = sp.Symbol("sigma_w", real=True)
SIGMA_SIGMA = sp.Symbol("sigma_sigma", nonnegative=True)
_SIZE = 3
_MOST_TOKENS = 3
_LARGEST = 1000
_LARGEST_TWICE = 250


def chain(system: SaddleSystem) -> tuple[Step, ...]:
    """All steps in order, each under the heading of its part."""
    tokens = explicit_tokens(system)
    parts = {
        "Replicas": _replicas(),
        "Replica-symmetric matrices": _matrices(),
        "The prior": _prior(system),
        "The channel: n -> 0 and Laplace where everything is Gaussian": _gaussian_channel(system),
        "The values eliminated": _values(system, tokens),
        "The prox of this activation": [*_prox(tokens), *_envelope(explicit_tokens(system, _LARGEST_TWICE))],
        "Reductions of this activation": _reductions(system, tokens),
        "Stationarity in the conjugates": _conjugates(system),
        "The law of the fields": _law(system),
        "Stationarity in the order parameters: Price and Stein": _channel(system),
        "The saddle-point equations": _equations(system),
    }
    steps = (replace(s, part=p, lhs=builtin(s.lhs), rhs=builtin(s.rhs)) for p, found in parts.items() for s in found)
    return tuple(s for s in steps if s.lhs != s.rhs)


def population_chain(system: PopulationSystem) -> tuple[Step, ...]:
    """The way to the risk of a fixed estimator, on the manifold where the cross overlaps vanish."""
    risk = system.risk
    flat = {**dict.fromkeys(CROSS_OVERLAPS, sp.S.Zero), BIAS_IDLE: sp.S.Zero}
    hidden, idle = risk.hidden.subs(flat), risk.idle.subs(flat)
    m, q = M["v"], Q["v"]
    best = best_value(risk.on_manifold)
    part = "The population risk"
    steps = [
        *(_weight(system.task, joint_laws(system.task, location(system.task))[0]) if system.task.gaussian else ()),
        Step(
            "given the scores, z* - sigma z at the hidden token is Gaussian with the second moment",
            1 - 2 * SIGMA_EPS * m + SIGMA_EPS**2 * q + NOISE**2,
            hidden,
        ),
        Step(
            "risk of one sequence with one idle token, in A = sigma_eps and B = sigma_eps^2 + sigma_l^2",
            hidden + idle,
            risk.on_manifold.subs({A: SIGMA_EPS, B: SIGMA_EPS**2 + SIGMA_IDLE**2}),
        ),
        Step(
            "the best values are proportional to the teacher's: at q_v = m_v^2 = (A/B)^2",
            risk.on_manifold.subs({m: best.m_v, q: best.q_v}, simultaneous=True),
            best.risk,
        ),
    ]
    return tuple(replace(s, part=part) for s in steps if s.lhs != s.rhs)


def _replicas() -> list[Step]:
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


def _matrices() -> list[Step]:
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


def _prior(system: SaddleSystem) -> list[Step]:
    """The replicated prior integral, n -> 0, beta -> infinity, for both blocks."""
    first = system.priors[BLOCKS[0]]
    theta, h = sp.Symbol("theta", real=True), sp.Symbol("h", real=True)
    a, variance = sp.symbols("rs_a h_var", positive=True)
    (ridge,) = sp.solve(first.precision.a - a, LAMBDAS[BLOCKS[0]])
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
            determinant.subs(LAMBDAS[BLOCKS[0]], ridge),
            a**N_REPLICAS * (1 - N_REPLICAS * (MT**2 + QT) / a),
        ),
    ]
    limits = _prior_limits(system, BLOCKS[0])
    steps += limits
    for b in BLOCKS[1:]:
        names = block_renaming(BLOCKS[0], b)
        steps += [Step(f"the same for {b}", s.lhs.xreplace(names), s.rhs.xreplace(names)) for s in limits]
    return steps


def _prior_limits(system: SaddleSystem, block: str) -> list[Step]:
    prior = system.priors[block]
    a = sp.Symbol("rs_a", positive=True)
    (ridge,) = sp.solve(prior.precision.a - a, LAMBDAS[block])
    integral, legendre = (prior.replicated - prior.legendre).subs(LAMBDAS[block], ridge), prior.legendre
    free = -prior.scaled / BETA
    return [
        Step(
            f"n -> 0 ({block}): the derivative in n of log(replicated prior) + Legendre terms of the overlaps "
            f"(V_{block}/beta) I + q_{block} J, with a = beta lambda_{block} + Vt; what carries a factor n vanishes",
            sp.Derivative(integral + legendre, N_REPLICAS),
            _with_replica_remainder(integral, legendre),
        ),
        Step(
            f"beta -> infinity ({block}): with mt = beta mh, Vt = beta Vh, qt = beta^2 qh, minus that per unit of "
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


def _gaussian_channel(system: SaddleSystem) -> list[Step]:
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


@dataclass(frozen=True)
class ExplicitTokens:
    """The staged derivatives of the loss with all token sums written out for a few tokens."""

    system: SaddleSystem
    count: int
    x: tuple[sp.Symbol, ...]
    w: tuple[sp.Symbol, ...]
    scalars: Mapping[sp.Symbol, sp.Expr]
    vectors: Mapping[sp.Symbol, tuple[sp.Expr, ...]]

    def at(self, expr: sp.Expr, token: int) -> sp.Expr:
        """A token expression at one token."""
        vectors = {s: v[token] for s, v in self.vectors.items()}
        return expr.xreplace({X: self.x[token], W: self.w[token], **self.scalars, **vectors})

    @cached_property
    def sigma(self) -> tuple[sp.Expr, ...]:
        """The activation."""
        form = self.system.activation.token_form()
        return tuple(self.at(form.f, i) for i in range(self.count))

    @cached_property
    def loss(self) -> sp.Expr:
        """The loss with the values eliminated."""
        return self.at(self.system.loss.value, 0)

    @cached_property
    def gradient(self) -> tuple[sp.Expr, ...]:
        """d loss / d x_i, from the staged derivatives."""
        return tuple(self.at(self.system.loss.gradient_x, i) for i in range(self.count))

    @cached_property
    def value_gradient(self) -> tuple[sp.Expr, ...]:
        """d loss / d w_i, from the staged derivatives."""
        return tuple(self.at(self.system.loss.gradient_w, i) for i in range(self.count))

    def hessian(self, i: int, j: int) -> sp.Expr:
        """d^2 loss / d x_i d x_j, from the staged derivatives."""
        return self._entry(self.system.loss.hessian_xx, i, j)

    def _entry(self, block: OuterProducts, i: int, j: int) -> sp.Expr:
        outers = [self.at(left, i) * self.at(right, j) for left, right in block.outers]
        return sp.Add(*outers, self.at(block.diagonal, i) if i == j else sp.S.Zero)

    @property
    def shown(self) -> str:
        """At how many tokens a step is shown, when the system has another number."""
        if self.system.tokens == self.count:
            return ""
        return f", shown at {self.count} token{'s' if self.count > 1 else ''}"


def explicit_tokens(system: SaddleSystem, operations: int = _LARGEST) -> ExplicitTokens:
    """At the system's own number of tokens, at most three, and fewer where the gradient takes too many operations."""
    largest = min(system.tokens or 2, _MOST_TOKENS)
    tokens = _written_out(system, 1)
    for count in range(2, largest + 1):
        more = _written_out(system, count)
        if more.gradient[0].count_ops() > operations:
            break
        tokens = more
    return tokens


def _written_out(system: SaddleSystem, count: int) -> ExplicitTokens:
    loss = system.loss
    x, w = _numbered("x", count), _numbered("w", count)
    fixed: dict[sp.Symbol, sp.Expr] = {L: sp.Integer(count), **parameter_symbols(system.activation.parameters)}
    scalars, vectors = dict(fixed), dict[sp.Symbol, tuple[sp.Expr, ...]]()
    tokens = ExplicitTokens(system, count, x, w, scalars, vectors)
    for definition in (*loss.value_definitions, *loss.gradient_definitions, *loss.hessian_definitions):
        _define(tokens, definition, scalars, vectors)
    return tokens


def _define(
    tokens: ExplicitTokens,
    definition: Definition,
    scalars: dict[sp.Symbol, sp.Expr],
    vectors: dict[sp.Symbol, tuple[sp.Expr, ...]],
) -> None:
    entries = tuple(tokens.at(definition.expr, i) for i in range(tokens.count))
    if definition.kind == "token":
        vectors[definition.symbol] = entries
    else:
        scalars[definition.symbol] = sp.Add(*entries) if definition.kind == "sum" else entries[0]


def _numbered(name: str, count: int) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Symbol(f"{name}_{i + 1}", real=True) for i in range(count))


def _values(system: SaddleSystem, tokens: ExplicitTokens) -> list[Step]:
    """z = w_z + a sigma: the minimiser, the envelope, the residual and G_v."""
    values, model, v = system.values, system.model, V["v"]
    sigma, w, z = (_numbered(name, tokens.count) for name in ("sigma", "w", "z"))
    sums = {U: sp.Add(*[s * t for s, t in zip(sigma, w)]), N: sp.Add(*[s**2 for s in sigma])}
    amplitude = values.amplitude.xreplace(sums)
    residual = Y - sp.Add(*[s * t for s, t in zip(sigma, z)])
    objective = sp.Add(*[(t - u) ** 2 for t, u in zip(z, w)]) / (2 * v) + model.loss.subs(RESIDUAL, residual)
    at_minimum = {t: u + AMPLITUDE * s for s, t, u in zip(sigma, z, w)}
    shortened = {U: SIGMA_W, N: SIGMA_SIGMA}
    envelope = values.envelope.xreplace(shortened)
    return [
        Step(
            "the loss sees z through sigma.z only: with z = w_z + a_z sigma the objective depends on two token sums"
            + tokens.shown,
            objective.xreplace(at_minimum),
            values.objective.xreplace(sums),
        ),
        Step(
            "stationarity in the value of token 1, at the a_z that solves it: the spring's pull is the loss's push"
            + tokens.shown,
            (sigma[0] * amplitude) / v,
            sigma[0]
            * sp.diff(model.loss, RESIDUAL).subs(RESIDUAL, residual.xreplace(at_minimum)).subs(AMPLITUDE, amplitude),
        ),
        Step(
            "the envelope: the objective at this a_z is the loss that is left for the scores",
            values.objective.subs(AMPLITUDE, values.amplitude).xreplace(shortened),
            envelope,
        ),
        Step(
            "the residual y - sigma.z at the prox, whose loss is the training loss",
            (Y - U - N * values.amplitude).xreplace(shortened),
            values.residual.xreplace(shortened),
        ),
        Step(
            "envelope theorem in sigma.w_z: minus the derivative of the loss that is left is G_v per unit of sigma",
            -sp.Derivative(envelope, SIGMA_W),
            values.field_gain.xreplace(shortened),
        ),
    ]


def _prox(tokens: ExplicitTokens) -> list[Step]:
    """The minimisation over the scores: stationarity, inverse map and its Jacobian; 1 keeps flat losses off 0 = 0."""
    v, x, loss, gradient = V["k"], tokens.x, tokens.loss, tokens.gradient
    fields = _numbered("w_chi", tokens.count)
    springs = sp.Add(*[(s - f) ** 2 for s, f in zip(x, fields)]) / (2 * v)
    steps = [
        Step(
            "prox stationarity: the derivative in the score of token 1 of |x - w_chi|^2/(2 V_k) + loss, zero at the "
            "prox; on the right by the staged chain rule over the token sums" + tokens.shown,
            sp.Derivative(springs + loss, x[0]),
            (x[0] - fields[0]) / v + gradient[0],
        ),
        Step(
            "the inverse map, w_chi = x + V_k grad loss(x), token 1: where the score field lies when the prox is x; "
            "G = (x - w_chi)/V_k = -grad loss" + tokens.shown,
            x[0] + v * sp.Derivative(loss, x[0]),
            x[0] + v * gradient[0],
        ),
        Step(
            "the Jacobian of the inverse map, I + V_k Hessian, by the staged chain rule: first entry" + tokens.shown,
            1 + v * sp.Derivative(loss, x[0], x[0]),
            1 + sp.Add(*[v * term for term in sp.Add.make_args(tokens.hessian(0, 0))]),
        ),
    ]
    if tokens.count > 1:
        steps.append(
            Step(
                "and its entry at tokens 1, 2 (1 added to both sides)" + tokens.shown,
                1 + v * sp.Derivative(loss, x[0], x[1]),
                1 + sp.Add(*[v * term for term in sp.Add.make_args(tokens.hessian(0, 1))]),
            )
        )
    return steps


def _envelope(tokens: ExplicitTokens) -> list[Step]:
    """G = -grad_w M in both fields."""
    v, x, gradient = V["k"], tokens.x, tokens.gradient
    inverse = tuple(s + v * g for s, g in zip(x, gradient))
    envelope = sp.Add(*[v * g**2 / 2 for g in gradient]) + tokens.loss
    return [
        Step(
            "envelope theorem for the scores: M = V_k |G|^2/2 + loss at w_chi(x) has dM = -G.dw_chi, so G = -grad_w M "
            "(1 added to both sides)" + tokens.shown,
            1 + sp.Derivative(envelope, x[0]),
            1 + sp.Add(*[g * sp.Derivative(w, x[0]) for g, w in zip(gradient, inverse)]),
        ),
        Step(
            "envelope theorem for the values: G_z = -dM/dw_z is the gain times sigma" + tokens.shown,
            -sp.Derivative(tokens.loss, tokens.w[0]),
            -tokens.value_gradient[0],
        ),
    ]


def _reductions(system: SaddleSystem, tokens: ExplicitTokens) -> list[Step]:
    """What the algebra found about this activation, at explicit tokens."""
    sigma, x, w, found = tokens.sigma, tokens.x, tokens.w, system.properties
    steps = []
    total = None if found.row_sum is None else tokens.at(found.row_sum, 0)
    if total is not None and tokens.count > 1:
        rest = total - sp.Add(*sigma[1:])
        steps.append(Step("constant row sum: sigma_1 is fixed by the other tokens" + tokens.shown, sigma[0], rest))
        names = _numbered("sigma", tokens.count)
        steps.append(
            Step(
                "so that (w_z, y) enters the residual only through differences" + tokens.shown,
                (Y - sp.Add(*[s * t for s, t in zip(names, w)])).subs(names[0], total - sp.Add(*names[1:])),
                Y - total * w[0] - sp.Add(*[s * (t - w[0]) for s, t in zip(names[1:], w[1:])]),
            )
        )
    if found.shift_invariant:
        t = sp.Symbol("t_shift", real=True)
        shifted = sigma[0].xreplace({s: s + t for s in x})
        steps.append(Step("shift invariance: a common shift of the scores drops out" + tokens.shown, shifted, sigma[0]))
        if tokens.count > 1:
            steps.append(
                Step(
                    "so that the gradient of the loss sums to zero over the tokens" + tokens.shown,
                    1 + tokens.gradient[0],
                    1 - sp.Add(*tokens.gradient[1:]),
                )
            )
    return steps


def _conjugates(system: SaddleSystem) -> list[Step]:
    """m, q, V from stationarity in mh, qh, Vh, and the prior with the conjugates eliminated."""
    steps = []
    for b in BLOCKS:
        value = system.priors[b].value
        linear = M[b] * MH[b] - Q[b] * VH[b] / 2 + V[b] * QH[b] / 2
        response = sp.factor(linear - value)
        for unknown, conjugate in ((V[b], QH[b]), (M[b], MH[b]), (Q[b], VH[b])):
            weight = sp.diff(linear, conjugate, unknown)
            steps.append(
                Step(
                    f"stationarity in {conjugate.name}: {unknown.name} is",
                    sp.Derivative(response, conjugate) / weight,
                    system.prior_update[unknown],
                )
            )
        steps.append(_prior_in_overlaps(system, b))
    return steps


def _prior_in_overlaps(system: SaddleSystem, block: str) -> Step:
    """The prior's free energy as a function of m, q, V alone."""
    m, q, v, mh, qh, vh = (s[block] for s in (M, Q, V, MH, QH, VH))
    (width,) = sp.solve(system.prior_update[v] - v, vh)
    (field,) = sp.solve((system.prior_update[m] - m).subs(vh, width), mh)
    (spread,) = sp.solve((system.prior_update[q] - q).subs({vh: width, mh: field}), qh)
    eliminated = system.priors[block].value.subs({vh: width, mh: field, qh: spread}, simultaneous=True)
    ridge = system.model.penalty_curvature().subs(LAMBDA, LAMBDAS[block])
    return Step(
        f"with the conjugates eliminated, the prior's part of the free energy ({block})",
        eliminated,
        sp.Add(ridge * q / 2, -(q - m**2) / (2 * v)),
    )


def _weight(task: Task, law: FieldLaw) -> list[Step]:
    """What the weight of a task that leaves the scores Gaussian does to the hidden token's."""
    mean, variance = task.hidden_score()
    weight = task.log_weight.xreplace({X: CHI_STAR})
    m, q = M["k"], Q["k"]
    return [
        Step(
            "the task's weight g times the base law N(0, 1) of the hidden token's teacher score: completing the square",
            weight - CHI_STAR**2 / 2,
            weight.subs(CHI_STAR, 0) + mean**2 / (2 * variance) - (CHI_STAR - mean) ** 2 / (2 * variance),
        ),
        Step(
            "w_chi = m_k chi* + sqrt(q_k - m_k^2) xi: its second moment at the hidden token",
            (q - m**2) + m**2 * (mean**2 + variance),
            law.covariance[0, 0] + law.mean[0] ** 2,
        ),
    ]


def _location(law: FieldLaw) -> list[Step]:
    """What is known of chi* given w, and what the scores of the joint law become when chi* is averaged over."""
    w, s = HIDDEN.w["k"], HIDDEN.slope
    tilt, total = sp.Symbol("u_tilt", positive=True), sp.Symbol("Z_g", positive=True)
    conditional = law.marginal(CHI_STAR, w).given(w)
    mean, variance = conditional.mean[0], conditional.covariance[0, 0]
    joint = law.marginal(CHI_STAR, w).covariance
    scores = joint.inv() * sp.Matrix([CHI_STAR, w])
    averaged_scores = [given_fields(e, law, HIDDEN) for e in scores]
    return [
        Step(
            "a weight normalised over the locations is a Laplace integral, in which the tokens factorise",
            sp.Integral(sp.exp(-tilt * total), (tilt, 0, sp.oo)),
            1 / total,
        ),
        Step(
            "given w, the teacher's score chi* is Gaussian: its variance, by the determinant of the joint law",
            variance,
            joint.det() / joint[1, 1],
        ),
        *[
            Step(
                f"Stein's lemma in that law, E[chi* g | w] = (mu + s^2 S) gbar: the score of {name} averaged over chi*",
                score.subs(CHI_STAR, mean + variance * s),
                found,
            )
            for name, score, found in zip(("chi*", "w_chi"), scores, averaged_scores, strict=True)
        ],
    ]


def _law(system: SaddleSystem) -> list[Step]:
    """The law of (w_chi, w_z, y) at the hidden token."""
    law = system.joint_laws[0]
    w, given = HIDDEN.w["v"], system.hidden_law.given(Y)
    centred = sp.Matrix(law.fields) - law.mean
    balanced = law.covariance * sp.Matrix(law.score())
    return [
        *(_location(law) if system.location.weighted else _weight(system.task, law)),
        Step(
            "the conditional law of w_z at the hidden token given y: its variance is the inverse of an entry of C^-1",
            given.covariance[given.fields.index(w), given.fields.index(w)],
            1 / law.covariance.inv()[law.fields.index(w), law.fields.index(w)],
        ),
        *[
            Step(
                f"the score C^-1 (fields - mean) that Stein's lemma needs, row of {field.name}",
                balanced[i],
                centred[i],
            )
            for i, field in enumerate(law.fields)
        ],
    ]


@dataclass(frozen=True)
class _Test:
    """exp(t.w) over one hidden and one idle token, whose averages under a law are closed."""

    laws: tuple[FieldLaw, ...]

    @staticmethod
    def exponent(field: sp.Symbol) -> sp.Symbol:
        return sp.Symbol("t_" + field.name.removeprefix("w_"), real=True)

    def exponents(self, law: FieldLaw) -> sp.Matrix:
        return sp.Matrix([self.exponent(f) for f in law.fields])

    @cached_property
    def average(self) -> sp.Expr:
        """E exp(t.w) = exp(t.mean + t.C t/2)."""
        parts = [
            (t.T * law.mean + t.T * law.covariance * t / 2)[0] for law in self.laws for t in (self.exponents(law),)
        ]
        return sp.exp(sp.Add(*[sp.expand(p) for p in parts]))

    def stein(self, average: ChannelAverage) -> sp.Expr:
        """A channel average for F = exp(t.w): E[w F] = (mean + C t) E[F], and G = -grad F = -t F."""
        total = sp.S.Zero
        for law, fields, integrand in zip(self.laws, (HIDDEN, IDLE), (average.hidden, average.idle)):
            moments = dict(zip(law.fields, law.mean + law.covariance * self.exponents(law)))
            total += integrand.xreplace({**moments, **self._gradient(fields)})
        return total

    def price(self, average: ChannelAverage) -> sp.Expr:
        """The derivative form for F = exp(t.w)."""
        total = sp.S.Zero
        for fields, integrand in zip((HIDDEN, IDLE), (average.hidden, average.idle)):
            gradient = self._gradient(fields)
            names = {g.name: value for g, value in gradient.items()}
            rates = {
                d: names[d.expr.func.__name__] * self.exponent(d.variables[0]) for d in integrand.atoms(sp.Derivative)
            }
            total += integrand.xreplace(rates).xreplace(gradient)
        return total

    def _gradient(self, fields: TokenFields) -> dict[sp.Symbol, sp.Expr]:
        slope = {fields.slope: self.exponent(CHI_STAR)}
        return slope | {fields.g[b]: -self.exponent(fields.w[b]) for b in BLOCKS}


def _channel(system: SaddleSystem) -> list[Step]:
    """d E[M] / d theta as averages of G: Price and Stein, tested on exp(t.w), and the explicit rate in V."""
    test = _Test(system.joint_laws)
    steps = []
    for theta in (s[b] for b in BLOCKS for s in (M, Q)):
        rate = sp.Derivative(test.average, theta)
        steps.append(
            Step(
                f"Price's theorem, derivative form: d/d{theta.name} of the average of exp(t.w) at the hidden and one "
                "idle token",
                rate,
                test.price(system.derivative_form[theta]) * test.average,
            )
        )
        steps.append(
            Step(
                f"Stein form of the same, free of derivatives of G: d/d{theta.name}",
                rate,
                test.stein(system.channel[theta]) * test.average,
            )
        )
    prox, field = sp.symbols("prox field_w", real=True)
    for b in BLOCKS:
        g = sp.Symbol(HIDDEN.g[b].name, real=True)
        steps.append(
            Step(
                f"M depends on V_{b} by itself: d/dV_{b} of (prox - w)^2/(2 V_{b}) at fixed prox is -G^2/2",
                sp.Derivative((prox - field) ** 2 / (2 * V[b]), V[b]),
                system.channel[V[b]].hidden.subs(g, (prox - field) / V[b]),
            )
        )
    return steps


def _equations(system: SaddleSystem) -> list[Step]:
    """The conjugates in terms of named averages, and the energy at the saddle."""
    equations = system.equations()
    steps = []
    for theta in ORDER_PARAMETERS:
        unknown = conjugate_of(theta)
        raw = _averaged_raw(system, theta)
        factor = system.rate_factor(theta)
        final = equations[unknown.name].replace(E, averaged)
        steps.append(
            Step(
                f"stationarity in {theta.name}: {unknown.name} = ({factor}) dE[M]/d{theta.name}, in averages over "
                "sequences",
                sp.Mul(factor, raw, evaluate=False),
                final,
            )
        )
    return [*steps, _energy(system)]


def _averaged_raw(system: SaddleSystem, theta: sp.Symbol) -> sp.Expr:
    """d E[M] / d theta by Price and Stein before any simplification, the score of the kept field's partner in full."""
    total = sp.S.Zero
    hidden, idle = system.joint_laws
    for law, fields, given, times in (
        (hidden, HIDDEN, system.channel[theta].hidden, sp.S.One),
        (idle, IDLE, system.channel[theta].idle, system.length - 1),
    ):
        total += averaged(times * given) if theta in V.values() else _raw(law, fields, theta, times)
    return total


def _raw(law: FieldLaw, fields: TokenFields, theta: sp.Symbol, times: sp.Expr) -> sp.Expr:
    gradient = {fields.w[b]: -fields.g[b] for b in BLOCKS}
    score = law.covariance.inv() * (sp.Matrix(law.fields) - law.mean)
    mean_rate, rate = law.mean.diff(theta), law.covariance.diff(theta)
    total = sp.S.Zero
    for i, first in enumerate(law.fields):
        total += averaged(times * mean_rate[i] * gradient[first]) if mean_rate[i] != 0 else 0
        for j, second in enumerate(law.fields):
            if rate[i, j] != 0:
                keep, by = (second, i) if second in gradient else (first, j)
                known = given_fields(score[by], law, fields)
                total += averaged(times * rate[i, j] / 2 * known * gradient[keep])
    return total


def averaged(integrand: sp.Expr) -> sp.Expr:
    """The average of a polynomial in the fields, each monomial's named."""
    if integrand == 0:
        return sp.S.Zero
    fields = sorted((s for s in integrand.free_symbols if is_field(s)), key=lambda s: s.name)
    poly = sp.Poly(integrand, *fields)
    return sp.Add(*[c * average((f, p) for f, p in zip(fields, powers) if p) for powers, c in poly.terms()])


def _energy(system: SaddleSystem) -> Step:
    """f at the saddle = alpha train_loss + the penalties: E[M] is the springs' energies V qh/(2 alpha) and the loss."""
    loss = sp.Symbol("train_loss", real=True)
    update = system.prior_update
    springs = [V[b] * QH[b] / (2 * ALPHA) for b in BLOCKS]
    free = sp.Add(*[system.priors[b].value for b in BLOCKS]) + ALPHA * (sp.Add(*springs) + loss)
    ridges = {b: system.model.penalty_curvature().subs(LAMBDA, LAMBDAS[b]) for b in BLOCKS}
    energy = ALPHA * loss + sp.Add(*[ridges[b] * Q[b] / 2 for b in BLOCKS])
    return Step(
        "the energy at the saddle: E[M] is train_loss plus the springs' V E|G|^2/2 = V qh/(2 alpha), so the free "
        "energy is alpha train_loss plus the penalties, here in terms of the conjugates",
        free.subs(update, simultaneous=True),
        energy.subs(update, simultaneous=True),
    )
