"""The replica calculation: from the replicated partition function to the zero-temperature free energy.

RS matrices are a I + b J of symbolic size n, so that determinants, inverses and the limit n -> 0 are exact algebra. On
the channel the two limits are named rules, `n -> 0` (E[Z^n] = 1 + n E[log Z] + ...) and `Laplace` (beta -> infinity),
and `gaussian_channel` carries both out explicitly where everything is Gaussian, as their check.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from theory.model import LAMBDA, LAMBDAS, MH, QH, VH, M, Model, Q, V

N_REPLICAS = sp.Symbol("n", positive=True)
BETA = sp.Symbol("beta", positive=True)


@dataclass(frozen=True)
class Step:
    """One line of the derivation: by `rule`, `lhs` equals `rhs`."""

    rule: str
    lhs: sp.Expr
    rhs: sp.Expr


@dataclass(frozen=True)
class ReplicaMatrix:
    """a I + b J, of size n."""

    a: sp.Expr
    b: sp.Expr
    n: sp.Expr = N_REPLICAS

    def log_det(self) -> sp.Expr:
        """log det = n log a + log(1 + n b / a): n - 1 eigenvalues a, one a + n b."""
        return self.n * sp.log(self.a) + sp.log(1 + self.n * self.b / self.a)

    def inverse(self) -> ReplicaMatrix:
        """(a I + b J)^-1, again of the same form."""
        return ReplicaMatrix(1 / self.a, -self.b / (self.a * (self.a + self.n * self.b)), self.n)

    def sum(self) -> sp.Expr:
        """1^T (a I + b J) 1."""
        return self.n * self.a + self.n**2 * self.b

    def trace_with(self, other: ReplicaMatrix) -> sp.Expr:
        """tr[(a I + b J)(a' I + b' J)]."""
        cross = self.a * other.b + self.b * other.a
        return self.n * (self.a * other.a + cross) + self.n**2 * self.b * other.b

    def explicit(self, size: int) -> sp.Matrix:
        """The matrix itself at a given size, for checks."""
        return self.a * sp.eye(size) + self.b * sp.ones(size)


def per_replica(expr: sp.Expr) -> sp.Expr:
    """Rule n -> 0: the coefficient of n in an expression that vanishes at n = 0."""
    return sp.simplify(sp.diff(expr, N_REPLICAS).subs(N_REPLICAS, 0))


def ground_state(free_entropy: sp.Expr) -> sp.Expr:
    """Rule beta -> infinity: minus the free entropy per unit of beta."""
    return sp.simplify(sp.limit(-free_entropy / BETA, BETA, sp.oo))


@dataclass(frozen=True)
class PriorFreeEnergy:
    """The regulariser's part of the free energy for one block, conjugate terms included."""

    value: sp.Expr
    steps: tuple[Step, ...]


def prior_free_energy(model: Model, block: str) -> PriorFreeEnergy:
    """m mh - q Vh/2 + qh V/2 - (...) for block k or v, derived from the replicated prior integral.

    Q_ab = V/beta I + q J are the student overlaps, m the teacher's; the conjugates enter as
    exp(mt theta* sum_a theta_a - theta^T (Vt I - qt J) theta / 2) and scale with beta as mt = beta mh,
    Vt = beta Vh, qt = beta^2 qh.
    """
    m, q, v, mh, qh, vh = M[block], Q[block], V[block], MH[block], QH[block], VH[block]
    mt, qt, vt = sp.symbols("mt qt Vt", positive=True)
    curvature = model.penalty_curvature().subs(LAMBDA, LAMBDAS[block])

    precision = ReplicaMatrix(BETA * curvature + vt, -qt)
    coupling = mt**2 * precision.inverse().sum()
    log_integral = N_REPLICAS * sp.log(2 * sp.pi) / 2 - precision.log_det() / 2 - sp.log(1 - coupling) / 2
    overlaps = ReplicaMatrix(v / BETA, q)
    legendre = -N_REPLICAS * mt * m + overlaps.trace_with(ReplicaMatrix(vt, -qt)) / 2
    replicated = log_integral + legendre

    entropy = per_replica(replicated)
    scaled = entropy.subs({mt: BETA * mh, qt: BETA**2 * qh, vt: BETA * vh}, simultaneous=True)
    value = sp.apart(ground_state(scaled), vh)
    steps = (
        Step(
            f"RS matrices: log det of a I + b J ({block})",
            sp.log(precision.a ** (N_REPLICAS - 1) * (precision.a + N_REPLICAS * precision.b)),
            precision.log_det(),
        ),
        Step(
            f"prior integral, n -> 0 ({block})",
            sp.Subs(sp.Derivative(replicated, N_REPLICAS), N_REPLICAS, sp.S.Zero),
            entropy,
        ),
        Step(f"beta -> infinity ({block})", sp.Limit(-scaled / BETA, BETA, sp.oo), value),
    )
    return PriorFreeEnergy(value, steps)


def gaussian_channel(model: Model) -> Step:
    """Both channel rules against the exact replicated average for one token with sigma = 1.

    The residuals u_a = y - z_a of n replicas are Gaussian with covariance (V/beta) I + D J, D = E(y - w)^2, so
    E prod_a exp(-beta c u_a^2 / 2) is a determinant; the rules say E[min_z (z - w)^2/(2V) + c (y - z)^2/2].
    """
    v, d = sp.symbols("V D", positive=True)
    c = model.loss_curvature()
    replicated = -ReplicaMatrix(1 + c * v, BETA * c * d).log_det() / 2
    exact = ground_state(per_replica(replicated))
    z = sp.Symbol("z", real=True)
    w_minus_y = sp.Symbol("u", real=True)
    objective = (z - w_minus_y) ** 2 / (2 * v) + c * z**2 / 2
    minimum = objective.subs(z, sp.solve(sp.diff(objective, z), z)[0])
    ruled = sp.simplify(sp.Poly(minimum, w_minus_y).coeff_monomial(w_minus_y**2) * d)
    return Step("n -> 0 and Laplace, checked on the Gaussian channel", exact, ruled)
