"""What holds of the derived kernels: their derivatives, the symmetries of the loss, and NumPy against mpmath."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

from replicode.codegen.interpret.oracle import evaluate
from replicode.validation.properties.subject import Subject
from replicode.validation.properties.symmetries import EXACT
from replicode.validation.properties.verdict import Verdict, compared, every, not_applicable

STEP = mpf(10) ** -14  # truncation 1e-28, rounding of a second difference 1e-32
CLOSE = mpf(10) ** -18
EMITTED = 1e-9


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


def pullback(of: Subject) -> Verdict:
    """The kernel of training, sum_l w_l d sigma_l / d chi_j, against central differences of sigma.w."""
    verdicts = []
    for f in of.fields():
        expected = _gradient(lambda x, w=f["w"]: mpmath.fdot(of.direct(x), w), f["x"])  # type: ignore[misc]
        found = of.vector(of.run("pullback", x=f["x"], w=f["w"])["slope"])
        verdicts.append(compared("pullback", found, expected, CLOSE))
    return every(verdicts)


def gradient_identity(of: Subject) -> Verdict:
    """The staged gradient of the z-eliminated loss: in chi, and -G_z = -gain sigma in w_z (envelope theorem)."""
    if "gradient" not in of.kernels:
        return not_applicable("no loss kernels for an activation with kinks")
    verdicts = []
    for f in of.fields():
        n, y, v = of.tokens, f["y"], f["V_v"]
        expected = _gradient(lambda p, n=n, y=y, v=v: of.loss(p[:n], p[n:], y, v), f["x"] + f["w"])  # type: ignore[misc]
        run = of.run("gradient", **f)
        values = [-run["gain"] * s for s in of.vector(run["sigmas"])]
        verdicts.append(compared("slope", of.vector(run["slope"]) + values, expected, CLOSE))
        verdicts.append(compared("loss", [run["value"]], [of.loss(**f)], EXACT))
    return every(verdicts)


def jacobian_identity(of: Subject) -> Verdict:
    """All three Hessian blocks, in (chi, chi), (chi, w_z), (w_z, w_z), against second differences of the loss."""
    if "curvatures" not in of.kernels:
        return not_applicable("no loss kernels for an activation with kinks")
    f, n = of.fields()[0], of.tokens
    whole = _hessian(lambda p: of.loss(p[:n], p[n:], f["y"], f["V_v"]), f["x"] + f["w"])
    run = of.run("curvatures", **f)
    blocks = {"h": whole[:n, :n], "c": whole[:n, n:], "e": whole[n:, n:]}
    return every([compared(name, list(run[name]), list(block), CLOSE) for name, block in blocks.items()])


def loss_permutation(of: Subject) -> Verdict:
    """The loss is unchanged when the tokens of (chi, w_z) are exchanged."""
    if "loss" not in of.kernels:
        return not_applicable("no loss kernels for an activation with kinks")
    verdicts = []
    for f in of.fields():
        moved = {**f, "x": f["x"][::-1], "w": f["w"][::-1]}
        verdicts.append(compared("loss", [of.run("loss", **moved)["value"]], [of.run("loss", **f)["value"]], EXACT))
    return every(verdicts)


def sign_symmetry(of: Subject) -> Verdict:
    """The flip (y, w_z) -> -(y, w_z) leaves the loss and its slope in chi unchanged."""
    if "gradient" not in of.kernels:
        return not_applicable("no loss kernels for an activation with kinks")
    verdicts = []
    for f in of.fields():
        one, two = (of.run("gradient", **g) for g in (f, {**f, "y": -f["y"], "w": [-w for w in f["w"]]}))
        both = [[r["value"], *of.vector(r["slope"])] for r in (one, two)]
        verdicts.append(compared("loss and slope", both[0], both[1], EXACT))
    return every(verdicts)


def generated_code(of: Subject) -> Verdict:
    """Every kernel of the generated NumPy module equals its interpretation in mpmath."""
    module = of.modules(of.tokens)
    if module is None:
        return not_applicable("no module is generated for it")
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
                    value = _expanded(output, value, int(getattr(module, "SHIFT_INVARIANT", True)))
                expected = _flat(value) * (len(found) if not isinstance(value, list | mpmath.matrix) else 1)
                verdicts.append(compared(f"{name}, {output}", found, expected, mpf(EMITTED)))
    return every(verdicts)


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
