"""The replica calculation: from the replicated partition function to the zero-temperature free energy.

RS matrices are a I + b J of symbolic size n, so that determinants, inverses and the limit n -> 0 are exact algebra. On
the channel the two limits are named rules, `n -> 0` (E[Z^n] = 1 + n E[log Z] + ...) and `Laplace` (beta -> infinity),
and `gaussian_channel` carries both out explicitly where everything is Gaussian, as their check. What is handed on keeps
the intermediate expressions, from which chain.py writes the derivation down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import sympy as sp

from replicode.theory.model import Block, Model

N_REPLICAS = sp.Symbol("n_rep", positive=True)
BETA = sp.Symbol("beta_T", positive=True)
MT, QT, VT = sp.symbols("mt qt Vt", positive=True)
CHANNEL_V, CHANNEL_VARIANCE = sp.symbols("V d_w", positive=True)
CHANNEL_FIELD, CHANNEL_Z = sp.symbols("u_w z", real=True)


@dataclass(frozen=True)
class Step:
    """One line of the derivation: by `rule`, `lhs` equals `rhs`; `part` is the heading it stands under."""

    rule: str
    lhs: sp.Expr
    rhs: sp.Expr
    part: str = ""


def in_parts(
    parts: Mapping[str, Iterable[Step]], shown: Callable[[sp.Expr], sp.Expr] = lambda side: side, same: bool = False
) -> tuple[Step, ...]:
    """The steps in order, each under its heading and with its sides as they are shown.

    Those whose sides are the same to the letter are left out, unless they are asked for.
    """
    steps = (Step(s.rule, shown(s.lhs), shown(s.rhs), part) for part, found in parts.items() for s in found)
    return tuple(s for s in steps if same or s.lhs != s.rhs)


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
    return sp.diff(expr, N_REPLICAS).subs(N_REPLICAS, 0)


def ground_state(free_entropy: sp.Expr) -> sp.Expr:
    """Rule beta -> infinity: minus the free entropy per unit of beta."""
    return sp.simplify(sp.limit(-free_entropy / BETA, BETA, sp.oo))


@dataclass(frozen=True)
class PriorFreeEnergy:
    """The regulariser's part of the free energy for one block, conjugate terms included, with the way to it.

    The replicated prior is exp(n log(2 pi)/2) / sqrt(det precision (1 - coupling)); `entropy` is its coefficient of n
    together with the Legendre terms, and `scaled` that with the conjugates' powers of beta put in.
    """

    precision: ReplicaMatrix
    coupling: sp.Expr
    legendre: sp.Expr
    replicated: sp.Expr
    entropy: sp.Expr
    scaled: sp.Expr
    value: sp.Expr
    spectral: SpectralPrior | None = None


@dataclass(frozen=True)
class SpectralPrior:
    """What one coordinate of structured tokens adds, and the two functions of Vh that are its means over all of them.

    `coordinate` is the free energy of one coordinate; the means of `tau` and `kappa` are the functions in the value.
    """

    coordinate: sp.Expr
    tau: sp.Expr
    kappa: sp.Expr


def spectral_functions(block: Block) -> tuple[sp.Expr, sp.Expr]:
    """tau and kappa of a block: means over the coordinates, functions of the strength and of Vh."""
    at = block.strength, block.Vh
    return sp.Function(f"tau_{block.name}")(*at), sp.Function(f"kappa_{block.name}")(*at)


@cache
def prior_free_energy(model: Model, block: Block) -> PriorFreeEnergy:
    """The prior of one block: closed where the tokens are isotropic, else a mean over coordinates."""
    return _structured_prior(model, block) if model.structured else _isotropic_prior(model, block)


def _structured_prior(model: Model, block: Block) -> PriorFreeEnergy:
    """The prior in whitened weights: each coordinate has its own curvature, and a teacher that is given.

    One coordinate's replicated integral is that of a Gaussian in the field mt theta*; the Legendre terms are those of
    the overlaps, which are means over the coordinates. The response is linear in qh and mh^2: its two coefficients,
    averaged over the coordinates, are tau and kappa.
    """
    precision = ReplicaMatrix(BETA * model.whitened_curvature(block) + VT, -QT)
    coupling = MT**2 * block.teacher_square * precision.inverse().sum()
    log_integral = N_REPLICAS * sp.log(2 * sp.pi) / 2 - precision.log_det() / 2 + coupling / 2
    legendre = _legendre(block)
    replicated = log_integral + legendre
    entropy = per_replica(replicated)
    scaled = entropy.subs(_powers(block), simultaneous=True)
    coordinate = ground_state(scaled)
    linear = ground_state(per_replica(legendre).subs(_powers(block), simultaneous=True))
    response = sp.expand(sp.cancel(-2 * (coordinate - linear)))
    parts = [sp.cancel(response.coeff(power)) for power in (block.qh, block.mh**2)]
    tau, kappa = spectral_functions(block)
    value = sp.expand(linear) - (block.mh**2 * kappa + block.qh * tau) / 2
    found = SpectralPrior(coordinate, *parts)
    return PriorFreeEnergy(precision, coupling, legendre, replicated, entropy, scaled, value, found)


def _legendre(block: Block) -> sp.Expr:
    """The Legendre terms of the replicated overlaps."""
    overlaps = ReplicaMatrix(block.V / BETA, block.q)
    return -N_REPLICAS * MT * block.m + overlaps.trace_with(ReplicaMatrix(VT, -QT)) / 2


def _powers(block: Block) -> dict[sp.Symbol, sp.Expr]:
    """How the conjugates scale with beta."""
    return {MT: BETA * block.mh, QT: BETA**2 * block.qh, VT: BETA * block.Vh}


def _isotropic_prior(model: Model, block: Block) -> PriorFreeEnergy:
    """m mh - q Vh/2 + qh V/2 - (...) for one block, derived from the replicated prior integral.

    Q_ab = V/beta I + q J are the student overlaps, m the teacher's; the conjugates enter as
    exp(mt theta* sum_a theta_a - theta^T (Vt I - qt J) theta / 2) and scale with beta as mt = beta mh,
    Vt = beta Vh, qt = beta^2 qh.
    """
    precision = ReplicaMatrix(BETA * model.penalty_curvature(block) + VT, -QT)
    coupling = MT**2 * precision.inverse().sum()
    log_integral = N_REPLICAS * sp.log(2 * sp.pi) / 2 - precision.log_det() / 2 - sp.log(1 - coupling) / 2
    legendre = _legendre(block)
    replicated = log_integral + legendre

    entropy = per_replica(replicated)
    scaled = entropy.subs(_powers(block), simultaneous=True)
    value = sp.apart(ground_state(scaled), block.Vh)
    return PriorFreeEnergy(precision, coupling, legendre, replicated, entropy, scaled, value)


def prior_free_energies(model: Model) -> dict[str, PriorFreeEnergy]:
    """All blocks by name: they differ by the names of their symbols only, so one is derived and the others renamed."""
    if model.structured:
        return {b.name: prior_free_energy(model, b) for b in model.blocks}
    first = model.blocks[0]
    derived = prior_free_energy(model, first)
    return {b.name: _renamed(derived, first.renaming(b)) for b in model.blocks}


def _renamed(prior: PriorFreeEnergy, names: dict[sp.Symbol, sp.Symbol]) -> PriorFreeEnergy:
    precision = ReplicaMatrix(prior.precision.a.xreplace(names), prior.precision.b.xreplace(names))
    rest = (prior.coupling, prior.legendre, prior.replicated, prior.entropy, prior.scaled, prior.value)
    return PriorFreeEnergy(precision, *[e.xreplace(names) for e in rest])


@dataclass(frozen=True)
class GaussianChannel:
    """One token with sigma = 1, where both channel rules can be carried out and compared with the exact average.

    The residuals u_a = y - z_a of n replicas are Gaussian with covariance (V/beta) I + d J, d = E(y - w)^2, so
    E prod_a exp(-beta c u_a^2 / 2) is a determinant; the rules say E[min_z (z - w)^2/(2V) + c (y - z)^2/2].
    """

    precision: ReplicaMatrix
    replicated: sp.Expr
    entropy: sp.Expr
    exact: sp.Expr
    objective: sp.Expr
    minimum: sp.Expr
    ruled: sp.Expr


@cache
def gaussian_channel(model: Model) -> GaussianChannel:
    """The exact replicated average and the one by the rules n -> 0 and Laplace."""
    c = model.square_curvature()
    precision = ReplicaMatrix(1 + c * CHANNEL_V, BETA * c * CHANNEL_VARIANCE)
    replicated = -precision.log_det() / 2
    entropy = per_replica(replicated)
    objective = (CHANNEL_Z - CHANNEL_FIELD) ** 2 / (2 * CHANNEL_V) + c * CHANNEL_Z**2 / 2
    minimum = sp.factor(objective.subs(CHANNEL_Z, sp.solve(sp.diff(objective, CHANNEL_Z), CHANNEL_Z)[0]))
    square = sp.Poly(minimum, CHANNEL_FIELD).coeff_monomial(CHANNEL_FIELD**2)
    ruled = sp.simplify(square * CHANNEL_VARIANCE)
    return GaussianChannel(precision, replicated, entropy, ground_state(entropy), objective, minimum, ruled)
