"""The property suite of `check`: what must hold of what the engine made of an activation, tried in numbers.

Each property is a function of a `Subject` that states its identity and returns a `Verdict`. A property that the
activation is not meant to have, or whose ingredients do not exist for it, is not applicable; one that is meant to hold
and does not has failed. All points are drawn from the subject's seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, Literal

import mpmath
import numpy as np
from mpmath import mpf

from codegen.emit import generate
from codegen.ir import Kernel
from codegen.lower import lower, pullback_kernel, sigma_kernel, stable_form
from codegen.oracle import evaluate
from theory.activation import Activation
from theory.analysis import Analysis, exchanged, known_values
from theory.errors import Refusal
from theory.lengths import lengths
from theory.numeric import Program, Undefined, random_scores
from theory.saddle import SaddleSystem, derive
from theory.task import Task

Outcome = Literal["passed", "failed", "not applicable"]

DIGITS = 60
STEP = mpf(10) ** -14  # truncation 1e-28, rounding of a second difference 1e-32
CLOSE = mpf(10) ** -18
EXACT = mpf(10) ** -40
EMITTED = 1e-9
SAMPLES = 3
SUITE_TOKENS = 2
MOST_TOKENS = 4
PHYSICS = {"alpha": 2.3, "nu": 1.4, "noise": 0.35, "lambda_k": 0.7, "lambda_v": 1.2}
ORDER = {"m_k": 0.35, "q_k": 0.6, "V_k": 0.1, "m_v": 0.5, "q_v": 0.8, "V_v": 0.1}
CONJUGATES = {"mh_k": 0.6, "qh_k": 0.5, "Vh_k": 0.8, "mh_v": -0.9, "qh_v": 1.1, "Vh_v": 1.4}
WIDTHS = (0.1, 0.03, 0.01, 0.003)
UNFOLDED = 1e-6
NODES = (10_000, 30_000)
RESOLVED = 1e-2
MOVE = 2e-3


@dataclass(frozen=True)
class Verdict:
    """How a property fared, and why."""

    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True)
class Subject:
    """An activation at a number of tokens with what was found and made of it; `kernels` lack what kinks forbid."""

    activation: Activation
    tokens: int
    analysis: Analysis
    kernels: Mapping[str, Kernel]
    modules: Callable[[int], ModuleType | None]
    seed: int = 1

    @cached_property
    def parameters(self) -> dict[str, float]:
        """A value for every parameter."""
        return {s.name: float(v) for s, v in known_values(self.activation).items()}

    @cached_property
    def direct(self) -> Program:
        """sigma as it was typed, without token algebra, rewrites or emitters."""
        return Program(self.activation.expr, known_values(self.activation))

    def run(self, name: str, **inputs: Any) -> dict[str, Any]:
        """The outputs of a kernel in mpmath."""
        tokens = {k: v for k, v in inputs.items() if k in ("x", "w")}
        scalars = {k: v for k, v in inputs.items() if k not in tokens}
        values = {k: mpf(v) for k, v in self.parameters.items()}
        return evaluate(self.kernels[name], tokens, scalars, values)

    def sigma(self, x: Sequence[mpf]) -> list[mpf]:
        """The lowered sigma at every token."""
        return self.vector(self.run("sigma", x=x)["sigmas"])

    def vector(self, value: Any) -> list[mpf]:
        """One number per token, also where all are alike."""
        return list(value) if isinstance(value, list) else [value] * self.tokens

    def fields(self) -> list[dict[str, Any]]:
        """Random fields (x, w, y, V_v) at which sigma has a value."""
        rng = random.Random(self.seed)
        found: list[dict[str, Any]] = []
        while len(found) < SAMPLES:
            x, w = random_scores(rng, self.tokens), random_scores(rng, self.tokens)
            fields = {"x": x, "w": w, "y": mpf(rng.uniform(-1.5, 1.5)), "V_v": mpf(rng.uniform(0.2, 1.5))}
            try:
                self.direct(x)
            except Undefined:
                continue
            found.append(fields)
        return found

    def loss(self, x: Sequence[mpf], w: Sequence[mpf], y: mpf, V_v: mpf) -> mpf:
        """(y - sigma.w)^2 / (2 (1 + V_v |sigma|^2)), from the direct sigma."""
        sigma = self.direct(x)
        return (y - mpmath.fdot(sigma, w)) ** 2 / (2 * (1 + V_v * mpmath.fdot(sigma, sigma)))


Property = Callable[[Subject], Verdict]

PASSED = Verdict("passed")


def subject(act: Activation, setting: str | Task, tokens: int | None, found: Analysis) -> Subject:
    """Derive, lower and (when asked for) generate what the properties look at."""
    count = min(tokens or SUITE_TOKENS, MOST_TOKENS)
    try:
        system = derive(act, setting, count)
    except Refusal:
        # The kernels do not depend on the task, and a task may be beyond what the solver knows.
        return Subject(act, count, found, _kernels(derive(act, "spiked", count)), lambda _: None)
    made: dict[int, ModuleType | None] = {}

    def module(length: int) -> ModuleType | None:
        if length not in made:
            made[length] = _module(replace(system, lengths=lengths(length)))
        return made[length]

    return Subject(act, count, found, _kernels(system), module)


def _kernels(system: SaddleSystem) -> dict[str, Kernel]:
    try:
        return {k.name: k for k in lower(system).kernels}
    except Refusal:
        stable = stable_form(system.activation, system.tokens or SUITE_TOKENS)
        return {k.name: k for k in (sigma_kernel(stable), pullback_kernel(stable))}


def _module(system: SaddleSystem) -> ModuleType | None:
    try:
        return generate(system).load()
    except Refusal:
        return None


def outcomes(of: Subject) -> dict[str, Verdict]:
    """Every property in turn."""
    with mpmath.workdps(DIGITS):
        return {name: run(of) for name, run in PROPERTIES.items()}


def _not_applicable(why: str) -> Verdict:
    return Verdict("not applicable", why)


def _compared(what: str, found: Sequence[mpf], expected: Sequence[mpf], tolerance: mpf) -> Verdict:
    """Entry by entry, relative to the largest."""
    found, expected = list(found), list(expected)
    allowed = tolerance * (1 + max((abs(e) for e in expected), default=mpf(0)))
    gap = max((abs(f - e) for f, e in zip(found, expected, strict=True)), default=mpf(0))
    if gap <= allowed:
        return PASSED
    return Verdict("failed", f"{what}: off by {mpmath.nstr(mpf(gap), 3)}")


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    return next((v for v in verdicts if v.outcome != "passed"), PASSED)


def _gradient(function: Callable[[list[mpf]], mpf], point: Sequence[mpf]) -> list[mpf]:
    def moved(i: int, by: mpf) -> mpf:
        return function([p + by if j == i else p for j, p in enumerate(point)])

    return [(moved(i, STEP) - moved(i, -STEP)) / (2 * STEP) for i in range(len(point))]


def _hessian(function: Callable[[list[mpf]], mpf], point: Sequence[mpf]) -> mpmath.matrix:
    size = len(point)
    found = mpmath.matrix(size, size)

    def moved(i: int, a: int, j: int, b: int) -> mpf:
        shifted = list(point)
        shifted[i] += a * STEP
        shifted[j] += b * STEP
        return function(shifted)

    for i in range(size):
        for j in range(i + 1):
            corners = [a * b * moved(i, a, j, b) for a in (1, -1) for b in (1, -1)]
            found[i, j] = found[j, i] = mpmath.fsum(corners) / (4 * STEP * STEP)
    return found


def equivariance(of: Subject) -> Verdict:
    """sigma(P chi) = P sigma(chi) for every exchange P of two tokens."""
    verdicts = []
    for fields in of.fields():
        plain = of.sigma(fields["x"])
        for i in range(of.tokens):
            for j in range(i):
                moved = of.sigma(exchanged(fields["x"], i, j))
                verdicts.append(_compared(f"tokens {j + 1}, {i + 1}", moved, exchanged(plain, i, j), EXACT))
    return _all(verdicts)


def sigma_as_typed(of: Subject) -> Verdict:
    """The lowered sigma, rewritten to be stable, equals the expression as it was typed."""
    return _all([_compared("sigma", of.sigma(f["x"]), of.direct(f["x"]), EXACT) for f in of.fields()])


def normalisation(of: Subject) -> Verdict:
    """sum_l sigma_l(chi) is the row sum that algebra found, at every chi."""
    total = of.analysis.properties.row_sum
    if total is None:
        return _not_applicable("sigma does not sum to a constant")
    expected = Program(total, known_values(of.activation))([mpf(0)] * of.tokens)[0]
    return _all([_compared("row sum", [mpmath.fsum(of.sigma(f["x"]))], [expected], EXACT) for f in of.fields()])


def shift_invariance(of: Subject) -> Verdict:
    """sigma(chi + t 1) = sigma(chi)."""
    if not of.analysis.shift_invariant.holds:
        return _not_applicable("sigma depends on a common shift of the scores")
    rng = random.Random(of.seed)
    shift = mpf(rng.uniform(1, 3))
    return _all(
        [_compared("shifted", of.sigma([x + shift for x in f["x"]]), of.sigma(f["x"]), EXACT) for f in of.fields()]
    )


def reflection(of: Subject) -> Verdict:
    """sigma(-chi) = sigma(chi) where sigma is even, -sigma(chi) where it is odd."""
    sign = {"even": 1, "odd": -1}.get(of.analysis.parity or "none")
    if sign is None:
        return _not_applicable("sigma is neither even nor odd")
    return _all(
        [
            _compared("reflected", of.sigma([-x for x in f["x"]]), [sign * s for s in of.sigma(f["x"])], EXACT)
            for f in of.fields()
        ]
    )


def scale_covariance(of: Subject) -> Verdict:
    """sigma(t chi) = t^d sigma(chi) for t > 0 where sigma is homogeneous of degree d."""
    degree = of.analysis.homogeneous
    if degree is None:
        return _not_applicable("sigma is not homogeneous")
    t = mpf(random.Random(of.seed).uniform(0.3, 3))
    power = t ** (mpf(int(degree.p)) / int(degree.q))
    return _all(
        [
            _compared("scaled", of.sigma([t * x for x in f["x"]]), [power * s for s in of.sigma(f["x"])], EXACT)
            for f in of.fields()
        ]
    )


def pullback(of: Subject) -> Verdict:
    """The kernel of training, sum_l w_l d sigma_l / d chi_j, against central differences of sigma.w."""
    verdicts = []
    for f in of.fields():
        expected = _gradient(lambda x, w=f["w"]: mpmath.fdot(of.direct(x), w), f["x"])  # type: ignore[misc]
        found = of.vector(of.run("pullback", x=f["x"], w=f["w"])["slope"])
        verdicts.append(_compared("pullback", found, expected, CLOSE))
    return _all(verdicts)


def gradient_identity(of: Subject) -> Verdict:
    """The staged gradient of the z-eliminated loss: in chi, and -G_z = -gain sigma in w_z (envelope theorem)."""
    if "gradient" not in of.kernels:
        return _not_applicable("no loss kernels for an activation with kinks")
    verdicts = []
    for f in of.fields():
        n, y, v = of.tokens, f["y"], f["V_v"]
        expected = _gradient(lambda p, n=n, y=y, v=v: of.loss(p[:n], p[n:], y, v), f["x"] + f["w"])  # type: ignore[misc]
        run = of.run("gradient", **f)
        values = [-run["gain"] * s for s in of.vector(run["sigmas"])]
        verdicts.append(_compared("slope", of.vector(run["slope"]) + values, expected, CLOSE))
        verdicts.append(_compared("loss", [run["value"]], [of.loss(**f)], EXACT))
    return _all(verdicts)


def jacobian_identity(of: Subject) -> Verdict:
    """All three Hessian blocks, in (chi, chi), (chi, w_z), (w_z, w_z), against second differences of the loss."""
    if "curvatures" not in of.kernels:
        return _not_applicable("no loss kernels for an activation with kinks")
    f, n = of.fields()[0], of.tokens
    whole = _hessian(lambda p: of.loss(p[:n], p[n:], f["y"], f["V_v"]), f["x"] + f["w"])
    run = of.run("curvatures", **f)
    blocks = {"h": whole[:n, :n], "c": whole[:n, n:], "e": whole[n:, n:]}
    return _all([_compared(name, list(run[name]), list(block), CLOSE) for name, block in blocks.items()])


def loss_permutation(of: Subject) -> Verdict:
    """The loss is unchanged when the tokens of (chi, w_z) are exchanged."""
    if "loss" not in of.kernels:
        return _not_applicable("no loss kernels for an activation with kinks")
    verdicts = []
    for f in of.fields():
        moved = {**f, "x": f["x"][::-1], "w": f["w"][::-1]}
        verdicts.append(_compared("loss", [of.run("loss", **moved)["value"]], [of.run("loss", **f)["value"]], EXACT))
    return _all(verdicts)


def sign_symmetry(of: Subject) -> Verdict:
    """The flip (y, w_z) -> -(y, w_z) leaves the loss and its slope in chi unchanged."""
    if "gradient" not in of.kernels:
        return _not_applicable("no loss kernels for an activation with kinks")
    verdicts = []
    for f in of.fields():
        one, two = (of.run("gradient", **g) for g in (f, {**f, "y": -f["y"], "w": [-w for w in f["w"]]}))
        both = [[r["value"], *of.vector(r["slope"])] for r in (one, two)]
        verdicts.append(_compared("loss and slope", both[0], both[1], EXACT))
    return _all(verdicts)


def generated_code(of: Subject) -> Verdict:
    """Every kernel of the generated NumPy module equals its interpretation in mpmath."""
    module = of.modules(of.tokens)
    if module is None:
        return _not_applicable("no module is generated for it")
    points = of.fields()
    params = np.array([of.parameters[p] for p in module.PARAMETERS])
    arrays = {
        name: np.array([[float(e) for e in f[name]] for f in points]).T
        if name in ("x", "w")
        else np.array([float(f[name]) for f in points])
        for name in points[0]
    }
    verdicts = []
    for name, kernel in of.kernels.items():
        inputs = [s.name for s in (*kernel.token_inputs, *kernel.scalar_inputs)]
        results = getattr(module, name)(*(arrays[i] for i in inputs), params)
        results = results if isinstance(results, tuple) else (results,)
        for index, f in enumerate(points):
            run = evaluate(
                kernel,
                {i: f[i] for i in inputs if i in ("x", "w")},
                {i: f[i] for i in inputs if i not in ("x", "w")},
                {k: mpf(v) for k, v in of.parameters.items()},
            )
            for result, (output, value) in zip(results, run.items(), strict=True):
                found = _entries(result, index, len(points))
                if name == "expansion":
                    value = _expanded(output, value, int(module.SHIFT_INVARIANT))
                expected = _flat(value) * (len(found) if not isinstance(value, list | mpmath.matrix) else 1)
                verdicts.append(_compared(f"{name}, {output}", found, expected, mpf(EMITTED)))
    return _all(verdicts)


def _entries(result: Any, index: int, count: int) -> list[mpf]:
    """The numbers of one sample in an array over samples, or in rows of such arrays."""
    if isinstance(result, tuple | list):
        return [e for part in result for e in _entries(part, index, count)]
    found = np.broadcast_to(result, (*np.shape(result)[:-1], count))[..., index]
    return [mpf(float(e)) for e in found.ravel()]


def _expanded(output: str, value: Any, first: int) -> Any:
    """What `expansion` returns of an output: no first token where a shift drops out, the upper half of a matrix."""
    if isinstance(value, mpmath.matrix):
        return [value[i, j] for i in range(first, value.rows) for j in range(i, value.rows)]
    return value[first:] if output == "slope" and isinstance(value, list) else value


def _flat(value: Any) -> list[mpf]:
    return list(value) if isinstance(value, list | mpmath.matrix) else [value]


class _Solver:
    """Prox-free averages of the generated module on fixed nodes, around a point where the prox does not fold."""

    def __init__(self, of: Subject, module: ModuleType, width: float) -> None:
        self.module = module
        self.setting = module.Setting(
            PHYSICS["nu"], PHYSICS["noise"], np.array([of.parameters[p] for p in module.PARAMETERS])
        )
        self.order = np.array(list({**ORDER, "V_k": width, "V_v": width}.values()))
        self.conjugates = np.array(list(CONJUGATES.values()))
        self.problem = PHYSICS["alpha"], PHYSICS["lambda_k"], PHYSICS["lambda_v"]
        self.channels = [self._channel(nodes) for nodes in NODES]
        self.averages = [self.quiet(c.averages, self.order) for c in self.channels]

    def _channel(self, nodes: int) -> Any:
        dim = sum(self.module.dimensions(self.setting))
        channel = self.module.ProxFreeChannel(self.module.lattice(dim, nodes, 0), self.setting)
        self.quiet(channel.adapt, self.order)
        return channel

    @staticmethod
    def quiet(function: Callable[..., Any], *arguments: Any) -> Any:
        """A call whose overflows are judged by what comes out."""
        with np.errstate(all="ignore"):
            return function(*arguments)

    @property
    def folds(self) -> bool:
        """Whether folds or a lost mass make the averages unfit for comparison."""
        fine = self.averages[-1]
        return not (fine.folded_mass < UNFOLDED and abs(fine.mass - 1.0) < RESOLVED)

    def energy(self, order: Any, conjugates: Any, averages: Any) -> float:
        """The free energy, given the averages."""
        return float(self.module.free_energy_value(order, conjugates, *self.problem, averages.envelope))

    def residual(self, averages: Any) -> Any:
        """The gradient of the free energy in twelve unknowns."""
        return np.asarray(self.module.free_energy_gradient(self.order, self.conjugates, *self.problem, averages.rates))


def _solver(of: Subject) -> _Solver | Verdict:
    """The averages of the module at few tokens, at the widest V without folds, or why there are none."""
    module = of.modules(min(of.tokens, SUITE_TOKENS))
    if module is None:
        return _not_applicable("no solver is generated for it")
    values = np.array([of.parameters[p] for p in module.PARAMETERS])
    if not module.dimensions(module.Setting(PHYSICS["nu"], PHYSICS["noise"], values))[0]:
        return _not_applicable("sigma does not depend on the scores")
    for width in WIDTHS:
        made = _Solver(of, module, width)
        if not made.folds:
            return made
    return _not_applicable("no point without folds was found")


def _resolution(coarse: Any, fine: Any) -> float:
    """How far two sets of nodes agree, relative to the largest entry."""
    return float(np.abs(np.subtract(fine, coarse)).max() / (1.0 + np.abs(fine).max()))


def _unresolved(resolution: float) -> Verdict:
    return _not_applicable(f"the averages are resolved to {resolution:.1g} only on {NODES[1]} nodes")


def residual_is_gradient(of: Subject) -> Verdict:
    """The residual is the gradient of the free energy in all twelve unknowns, at a point that solves nothing.

    E[M] comes from the envelope alone, the residual from Price and Stein: fourth-order differences compare the two.
    """
    made = _solver(of)
    if isinstance(made, Verdict):
        return made
    coarse, fine = (made.residual(a) for a in made.averages)
    resolution = _resolution(coarse, fine)
    if not resolution < RESOLVED:
        return _unresolved(resolution)
    point = np.concatenate([made.order, made.conjugates])

    def energy(index: int, move: float) -> float:
        order, conjugates = np.split(point + move * (np.arange(12) == index), 2)
        averages = made.quiet(made.channels[-1].averages, order) if index < 6 else made.averages[-1]
        return made.energy(order, conjugates, averages)

    def difference(index: int) -> float:
        step = MOVE * max(abs(point[index]), 0.01)
        near, far = ((energy(index, k * step) - energy(index, -k * step)) / (2 * k * step) for k in (1, 2))
        return float((4 * near - far) / 3)

    expected = [mpf(difference(i)) for i in range(12)]
    return _compared("residual", [mpf(float(r)) for r in fine], expected, mpf(max(10 * resolution, 1e-6)))


def stein_is_derivative(of: Subject) -> Verdict:
    """Stein's and the derivative form of Vh_k agree where the prox does not jump: -E sum_l dG_l/dw_l either way."""
    made = _solver(of)
    if isinstance(made, Verdict):
        return made
    stein = [float(made.module.conjugates_from_rates(a.rates, 1.0)[2]) for a in made.averages]
    trace = [float(made.quiet(c.response, made.order).trace) for c in made.channels]
    resolution = _resolution([stein[0], trace[0]], [stein[1], trace[1]])
    if not resolution < RESOLVED:
        return _unresolved(resolution)
    return _compared("Vh_k", [mpf(stein[1])], [mpf(trace[1])], mpf(max(10 * resolution, 1e-8)))


def ridge_limit(of: Subject) -> Verdict:
    """One token and a constant row sum s: attention is ridge regression on s z, and E[M] is explicit.

    E[M] = (1 + noise^2 - 2 s m_v + s^2 q_v) / (2 (1 + s^2 V_v)). The free energy and its gradient are linear in alpha,
    so that two values of alpha give E[M] and its derivatives in all six order parameters.
    """
    total = of.analysis.properties.row_sum
    scale = float(Program(total, known_values(of.activation))([mpf(0)])[0]) if total is not None else 0.0
    module = of.modules(1) if scale else None
    if module is None:
        return _not_applicable("sigma is no constant at one token, or has no solver")

    def rates(nodes: int) -> Any:
        once, twice = ({**PHYSICS, "alpha": a * PHYSICS["alpha"]} for a in (1, 2))
        gap = [
            np.append(
                module.residual(ORDER, CONJUGATES, **case, nodes=nodes, **of.parameters)[:6],
                module.free_energy(ORDER, CONJUGATES, **case, nodes=nodes, **of.parameters),
            )
            for case in (once, twice)
        ]
        return (gap[1] - gap[0]) / PHYSICS["alpha"]

    coarse, fine = (rates(nodes) for nodes in NODES)
    shrink = 1.0 + scale**2 * ORDER["V_v"]
    square = 1.0 + PHYSICS["noise"] ** 2 - 2.0 * scale * ORDER["m_v"] + scale**2 * ORDER["q_v"]
    expected = [0.0, 0.0, 0.0, -scale / shrink, scale**2 / (2.0 * shrink), -(scale**2) * square / (2.0 * shrink**2)]
    resolution = _resolution(coarse, fine)
    if not resolution < RESOLVED:
        return _unresolved(resolution)
    explicit = [mpf(e) for e in (*expected, square / (2.0 * shrink))]
    return _compared("E[M]", [mpf(float(e)) for e in fine], explicit, mpf(max(10 * resolution, 1e-8)))


PROPERTIES: Mapping[str, Property] = {
    "equivariance": equivariance,
    "sigma as typed": sigma_as_typed,
    "normalisation": normalisation,
    "shift invariance": shift_invariance,
    "reflection": reflection,
    "scale covariance": scale_covariance,
    "pullback": pullback,
    "gradient identity": gradient_identity,
    "jacobian identity": jacobian_identity,
    "token permutation of the loss": loss_permutation,
    "sign symmetry": sign_symmetry,
    "generated code": generated_code,
    "residual is the gradient of the free energy": residual_is_gradient,
    "stein form is the derivative form": stein_is_derivative,
    "ridge limit": ridge_limit,
}
