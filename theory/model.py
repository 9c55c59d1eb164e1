"""The learning problem as one value: blocks of weights, laws of fields and label, output, loss and penalty.

Everything downstream is derived from the `Model` handed on. Nothing else in the project knows what the loss, the
penalty, the label or the student's output are, nor at which place an order parameter stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations, permutations
from typing import Literal

import sympy as sp

from replicode.theory.errors import InputError, Refusal
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.language.nodes import RADIUS, W

ALPHA = sp.Symbol("alpha", positive=True)
NU = sp.Symbol("nu", nonnegative=True)
NOISE = sp.Symbol("noise", nonnegative=True)

CHI_STAR = sp.Symbol("chi_star", real=True)
Z_STAR = sp.Symbol("z_star", real=True)
LABEL_NOISE = sp.Symbol("label_noise", real=True)
Y = sp.Symbol("y", real=True)
F = sp.Symbol("f", real=True)
SIGMA = sp.Symbol("sigma", real=True)
THETA = sp.Symbol("theta", real=True)
LAMBDA = sp.Symbol("lambda", nonnegative=True)
EIGENVALUE = sp.Symbol("s_i", positive=True)
PENALTY_WEIGHT = sp.Symbol("p_i", nonnegative=True)


@dataclass(frozen=True)
class Block:
    """One vector of weights: its symbols are those of m, q, V and of their conjugates, with the block's name.

    `field` names its field on a token, `teacher` is the field of the teacher it overlaps with, and `role` says whether
    its field is a score, which the activation sees, or a value, which the output is linear in.
    """

    name: str
    field: str
    teacher: sp.Symbol
    role: Literal["score", "value"]

    def _symbol(self, letter: str, **assumptions: bool) -> sp.Symbol:
        return sp.Symbol(f"{letter}_{self.name}", **assumptions)

    @property
    def m(self) -> sp.Symbol:
        """The overlap with the teacher."""
        return self._symbol("m", real=True)

    @property
    def q(self) -> sp.Symbol:
        """The squared norm."""
        return self._symbol("q", positive=True)

    @property
    def V(self) -> sp.Symbol:
        """The response: beta times the variance at temperature 1/beta."""
        return self._symbol("V", positive=True)

    @property
    def mh(self) -> sp.Symbol:
        """The conjugate of m."""
        return self._symbol("mh", real=True)

    @property
    def qh(self) -> sp.Symbol:
        """The conjugate of V."""
        return self._symbol("qh", nonnegative=True)

    @property
    def Vh(self) -> sp.Symbol:
        """The conjugate of q."""
        return self._symbol("Vh", real=True)

    @property
    def strength(self) -> sp.Symbol:
        """The strength of the penalty."""
        return self._symbol("lambda", nonnegative=True)

    @property
    def teacher_square(self) -> sp.Symbol:
        """The square of the teacher's whitened weight in one coordinate, one on average."""
        return sp.Symbol(f"c_{self.name}_i", nonnegative=True)

    @property
    def conjugate_of(self) -> dict[sp.Symbol, sp.Symbol]:
        """The conjugate that stationarity in each of m, q, V determines."""
        return {self.m: self.mh, self.q: self.Vh, self.V: self.qh}

    def student_field(self) -> dict[str, sp.Expr]:
        """The field w of a student with overlaps m, q: m times the teacher's field plus independent noise."""
        return {self.teacher.name: self.m, f"xi_{self.name}": sp.sqrt(self.q - self.m**2)}

    def renaming(self, other: Block) -> dict[sp.Symbol, sp.Symbol]:
        """The symbols of this block by those of another."""
        own, others = ((b.m, b.q, b.V, b.mh, b.qh, b.Vh, b.strength) for b in (self, other))
        return dict(zip(own, others, strict=True))


@dataclass(frozen=True)
class TokenFields:
    """The names of one token's fields w and G = (prox - w)/V by block, scores first, and of the slopes of the weights.

    `slopes` are S = d log Z / d mu by block, mu = E[teacher's field | w]: of Z = E[g | w], the weight of the location,
    for the scores, and of Z = P(y | w), the label's law, for the values of the hidden token.
    """

    w: Mapping[str, sp.Symbol]
    g: Mapping[str, sp.Symbol]
    slopes: Mapping[str, sp.Symbol]


@dataclass(frozen=True)
class Model:
    """Training objective sum_mu loss(y_mu, f_mu) + sum_b sum_i penalty(theta_bi), and the law of what it is fed.

    `label` is y in the value teacher's field at the hidden token and in standard normal noise; or it is a tuple of
    pairs (y, chance of it), of which one is drawn. `output` is what one token adds to f, in sigma and the token's value
    w. `risk` is what is reported of a fresh sequence. In `penalty` lambda is the strength of the block that theta
    belongs to. `covariance` is the eigenvalue of the tokens' covariance in one coordinate: one, or EIGENVALUE, and then
    eigenvalues and teacher are data that come with every question. `radius` is what the fields of a Gaussian token are
    multiplied by, chi = radius c and z = radius zeta: one, or RADIUS, and then each token's is drawn from data.
    """

    blocks: tuple[Block, ...] = (Block("k", "chi", CHI_STAR, "score"), Block("v", "z", Z_STAR, "value"))
    label: sp.Basic = Z_STAR + NOISE * LABEL_NOISE
    output: sp.Expr = SIGMA * W
    loss: sp.Expr = (Y - F) ** 2 / 2
    risk: sp.Expr = (Y - F) ** 2
    penalty: sp.Expr = LAMBDA * THETA**2 / 2
    covariance: sp.Expr = sp.S.One
    radius: sp.Expr = sp.S.One

    @cached_property
    def key(self) -> str:
        """A text that is the same for equal models and no others."""
        expressions = [getattr(self, f.name) for f in fields(self) if f.name != "blocks"]
        return "\0".join([repr(self.blocks), *map(sp.srepr, expressions)])

    def texts(self) -> dict[str, str]:
        """Its expressions as text."""
        return {f.name: str(getattr(self, f.name)) for f in fields(self) if f.name != "blocks"}

    @cached_property
    def order_parameters(self) -> tuple[sp.Symbol, ...]:
        """m, q, V of every block: the order in which they stand wherever they are a vector."""
        return tuple(s for b in self.blocks for s in (b.m, b.q, b.V))

    @cached_property
    def conjugates(self) -> tuple[sp.Symbol, ...]:
        """mh, qh, Vh of every block."""
        return tuple(s for b in self.blocks for s in (b.mh, b.qh, b.Vh))

    @property
    def overlaps(self) -> tuple[sp.Symbol, ...]:
        """m and q of every block, the parameters of the fields' law."""
        return tuple(s for b in self.blocks for s in (b.m, b.q))

    def index(self, name: str | sp.Symbol) -> int:
        """Where an order parameter, or a conjugate, stands in its vector."""
        for symbols in (self.order_parameters, self.conjugates):
            if str(name) in (names := [s.name for s in symbols]):
                return names.index(str(name))
        raise InputError("order parameter", name, ", ".join(map(str, self.order_parameters + self.conjugates)))

    def block(self, name: str) -> Block:
        """The block of a name."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise InputError("block", name, " or ".join(b.name for b in self.blocks))

    def block_of(self, theta: sp.Symbol) -> Block:
        """The block that an order parameter belongs to."""
        (block,) = [b for b in self.blocks if theta in b.conjugate_of]
        return block

    def conjugate_of(self, theta: sp.Symbol) -> sp.Symbol:
        """The conjugate that stationarity in an order parameter determines: m -> mh, q -> Vh, V -> qh."""
        return self.block_of(theta).conjugate_of[theta]

    @property
    def has_scores(self) -> bool:
        """Whether there is a block whose field the activation sees."""
        return any(b.role == "score" for b in self.blocks)

    def without_scores(self) -> Model:
        """The same problem where the activation is a constant: regression on the values."""
        return replace(self, blocks=tuple(b for b in self.blocks if b.role != "score"))

    def with_scores(self) -> Model:
        """The same problem with a block of scores, which need not be seen."""
        return self if self.has_scores else replace(self, blocks=(DEFAULT_MODEL.scores, *self.blocks))

    @cached_property
    def scores(self) -> Block:
        """The block whose field the activation sees."""
        return self._of_role("score")

    @cached_property
    def values(self) -> Block:
        """The block whose field the output is linear in, so that it is eliminated in closed form."""
        return self._of_role("value")

    def _of_role(self, role: str) -> Block:
        found = [b for b in self.blocks if b.role == role]
        if len(found) != 1:
            raise Refusal(
                f"blocks {', '.join(b.name for b in self.blocks)}: exactly one of them must be of role {role}"
            )
        return found[0]

    @cached_property
    def hidden(self) -> TokenFields:
        """The fields of the hidden token."""
        return self._token_fields("eps")

    @cached_property
    def idle(self) -> TokenFields:
        """The fields of an idle token."""
        return self._token_fields("l")

    def _token_fields(self, token: str) -> TokenFields:
        blocks = sorted(self.blocks, key=lambda b: b.role)
        w, g = ({b.name: sp.Symbol(f"{letter}_{b.field}_{token}", real=True) for b in blocks} for letter in ("w", "G"))
        names = {"score": f"S_{token}", "value": f"S_y_{token}"}
        return TokenFields(w, g, {b.name: sp.Symbol(names[b.role], real=True) for b in blocks})

    def crossed(self, student: Block, teacher: Block) -> sp.Symbol:
        """The overlap of a student with the teacher of another block, zero on the manifold."""
        return sp.Symbol(f"{student.name}_{teacher.name}star", real=True)

    def mixed(self, one: Block, two: Block) -> sp.Symbol:
        """The overlap of the students of two blocks, zero on the manifold."""
        first, second = sorted((one, two), key=self.blocks.index)
        return sp.Symbol(f"{first.name}_{second.name}", real=True)

    @cached_property
    def cross_overlaps(self) -> tuple[sp.Symbol, ...]:
        """All overlaps that vanish on the manifold."""
        crossed = [self.crossed(*pair) for pair in permutations(self.blocks, 2)]
        return (*crossed, *[self.mixed(*pair) for pair in combinations(self.blocks, 2)])

    def label_sources(self) -> dict[sp.Symbol, sp.Expr]:
        """The label's coefficients in the teacher's field and in the noise; it is Gaussian only if linear in them."""
        if not isinstance(self.label, sp.Expr):
            raise Refusal(f"label {self.label}: only a label without chances leaves the fields Gaussian")
        sources = {s: sp.diff(self.label, s) for s in (self.values.teacher, LABEL_NOISE)}
        rest = sp.expand(self.label - sp.Add(*[c * s for s, c in sources.items()]))
        if rest != 0 or any(c.has(*sources) for c in sources.values()):
            named = " and ".join(map(str, sources))
            raise Refusal(f"label {self.label}: only one linear in {named} leaves the fields Gaussian")
        return sources

    @cached_property
    def label_in_law(self) -> bool:
        """Whether the label is one of the Gaussian fields; that of a token with a radius of its own is not."""
        try:
            return bool(self.label_sources()) and not self.radial
        except Refusal:
            return False

    @cached_property
    def translated(self) -> bool:
        """Whether the loss sees y - f alone."""
        return bool(sp.simplify(sp.diff(self.loss, Y) + sp.diff(self.loss, F)) == 0)

    @cached_property
    def margin(self) -> bool:
        """Whether the loss sees the product y f alone: it then asks for labels 1 and -1."""
        product = sp.simplify(Y * sp.diff(self.loss, Y) - F * sp.diff(self.loss, F)) == 0
        return bool(product and self.loss.has(Y))

    @cached_property
    def square(self) -> bool:
        """Whether the loss is a multiple of (y - f)^2."""
        try:
            return bool(self.loss_curvature())
        except Refusal:
            return False

    def output_rate(self) -> sp.Expr:
        """What one token's value is multiplied by in f; only where f is linear in the values are they eliminated."""
        rate = sp.diff(self.output.subs(W, self.radius * W), W)
        if W in rate.free_symbols or sp.expand(self.output - rate / self.radius * W) != 0:
            raise Refusal(f"output {self.output}: only one linear in w lets the value channel be eliminated")
        return rate

    @property
    def weighs_values(self) -> bool:
        """Whether a token adds sigma*w to f, and nothing else."""
        return bool(sp.expand(self.output - SIGMA * W) == 0)

    def penalty_curvature(self, block: Block) -> sp.Expr:
        """The c of penalty = c theta^2 / 2; the prior integral is Gaussian only for such a penalty."""
        curvature = sp.diff(self.penalty, THETA, 2)
        if THETA in curvature.free_symbols or sp.simplify(self.penalty - curvature * THETA**2 / 2) != 0:
            raise Refusal(f"penalty {self.penalty}: only a multiple of theta**2 leaves the prior integral Gaussian")
        return curvature.subs(LAMBDA, block.strength)

    @property
    def structured(self) -> bool:
        """Whether the tokens' covariance is not the identity; the overlaps then are in its metric."""
        if self.covariance not in (sp.S.One, EIGENVALUE):
            raise Refusal(f"covariance {self.covariance}: only 1, or {EIGENVALUE}, the eigenvalue of a coordinate")
        return bool(self.covariance != 1)

    @property
    def radial(self) -> bool:
        """Whether every token has a radius of its own."""
        if self.radius not in (sp.S.One, RADIUS):
            raise Refusal(f"radius {self.radius}: only 1, or {RADIUS}, the radius of a token")
        return bool(self.radius != 1)

    def whitened_curvature(self, block: Block) -> sp.Expr:
        """The curvature of the penalty in one coordinate of the whitened weights, in which the tokens are isotropic.

        theta = whitened/sqrt(s_i); coordinates may be weighed by p_i.
        """
        return self.penalty_curvature(block) * PENALTY_WEIGHT / self.covariance

    def loss_curvature(self) -> sp.Expr:
        """The c of loss = c (y - f)^2 / 2; only then is the value channel eliminated in closed form."""
        return _square(self.loss, "loss", "lets the value channel be eliminated")

    def square_curvature(self) -> sp.Expr:
        """The c of the square c (y - f)^2 / 2 on which rules are checked: the loss itself where it is one."""
        return self.loss_curvature() if self.square else sp.S.One

    def risk_factor(self) -> sp.Expr:
        """The c of risk = c (y - f)^2, whose average given the scores is a matter of two moments."""
        return _square(self.risk, "risk", "is an average of second moments") / 2

    def noise_risk(self) -> sp.Expr:
        """The part of the risk that is the label's own noise."""
        return self.risk_factor() * self.label_sources()[LABEL_NOISE] ** 2

    def token_law(self, students: Mapping[str, sp.Symbol]) -> FieldLaw:
        """The base law of one token's teacher fields, label and student fields, teachers being N(0, I)."""
        teachers = {b.teacher: {b.teacher.name: sp.S.One} for b in self.blocks}
        label = {Y: {s.name: c for s, c in self.label_sources().items()}} if self.label_in_law else {}
        return FieldLaw.of({**teachers, **label, **{students[b.name]: b.student_field() for b in self.blocks}})


def _square(expr: sp.Expr, name: str, why: str) -> sp.Expr:
    """The c of c (y - f)^2 / 2."""
    curvature = sp.diff(expr, F, 2)
    if {Y, F} & curvature.free_symbols or sp.simplify(expr - curvature * (Y - F) ** 2 / 2) != 0:
        raise Refusal(f"{name} {expr}: only a multiple of (y - f)**2 {why}")
    return curvature


DEFAULT_MODEL = Model()
STRUCTURED_MODEL = Model(covariance=EIGENVALUE)
