"""Small faults of other losses, of labels and of regression, each with the tests that must notice it."""

from mutation.jobs import Checks, Mutant


def _checks(file: str, *names: str) -> tuple[Checks, ...]:
    return (Checks(f"{file}.py", tuple(f"test_{name}" for name in names)),)


envelope = _checks("unit/test_losses", "the_envelope_is_a_minimum")
derivatives = _checks("unit/test_losses", "the_derivatives_of_the_envelope")
labels = _checks("oracle/test_losses", "a_gaussian_label_is_a_closed_case_of_the_others")
thresholds = _checks("oracle/test_losses", "a_threshold_is_a_closed_case_of_a_chance")
likelihood = _checks("oracle/test_losses", "logistic_maximum_likelihood_solves_the_equations_of_sur_and_candes")
separable = _checks("oracle/test_losses", "without_a_minimum_the_threshold_is_told")

LOSSES = [
    Mutant(
        "Hamilton-Jacobi without the half",
        "theory/derive/channel.py",
        "return -v * slope**2 / 2",
        "return -v * slope**2",
        derivatives,
    ),
    Mutant(
        "stiffness of the loss and not of its envelope",
        "theory/derive/channel.py",
        "(STIFFNESS, bend / (1 + tau * bend))",
        "(STIFFNESS, bend)",
        derivatives,
    ),
    Mutant(
        "the spring's energy counted twice in the envelope",
        "theory/derive/channel.py",
        "envelope=tau * GAIN**2 / 2 + loss,",
        "envelope=tau * GAIN**2 + loss,",
        envelope,
    ),
    Mutant(
        "a prox that rests on a kink, at the kink mirrored",
        "theory/derive/pieces.py",
        "parts.append(((field - piece.high) / tau, 1 / tau, high, after))",
        "parts.append(((field + piece.high) / tau, 1 / tau, high, after))",
        envelope,
    ),
    Mutant(
        "a piece without its curvature in the prox",
        "theory/derive/pieces.py",
        "parts.append(((piece.b + piece.a * field) / (1 + piece.a * tau), rate, low, high))",
        "parts.append(((piece.b + piece.a * field), rate, low, high))",
        envelope,
    ),
    Mutant(
        "the interval of a convex loss on the wrong side",
        "codegen/runtime/loss.py",
        "other = U - tau * slope",
        "other = U + tau * slope",
        envelope,
    ),
    Mutant(
        "slope of a line's law without its deviation",
        "codegen/runtime/label.py",
        "(a * xi[0] / deviation)[None])",
        "(a * xi[0])[None])",
        labels,
    ),
    Mutant(
        "slope of a sampled label without its deviation",
        "codegen/runtime/label.py",
        "(xi[0] / deviation)[None]",
        "(xi[0])[None]",
        labels,
    ),
    Mutant(
        "slope of a threshold on its other side",
        "codegen/runtime/label.py",
        "special.erfcx(-t / np.sqrt(2.0))",
        "special.erfcx(t / np.sqrt(2.0))",
        thresholds,
    ),
    Mutant(
        "spread of z* given w forgotten at a threshold",
        "codegen/runtime/label.py",
        "deviation = np.sqrt(a * a * self.spread + c * c)\n        return (a",
        "deviation = np.sqrt(a * a + c * c)\n        return (a",
        thresholds,
    ),
    Mutant(
        "risk of labels with half their overlap",
        "theory/derive/population.py",
        "EYY - 2 * scale * law[0, 1] * EYZ * A",
        "EYY - scale * law[0, 1] * EYZ * A",
        labels,
    ),
    Mutant(
        "a line with twice its noise",
        "theory/derive/label.py",
        "for e in (a, b, c)) else (a, b, c)",
        "for e in (a, b, c)) else (a, b, 2 * c)",
        labels,
    ),
    Mutant(
        "one copy of a mirrored label",
        "codegen/lower/module.py",
        '"LABEL_COPIES": 2.0 if told.mirrored else 1.0,',
        '"LABEL_COPIES": 1.0,',
        separable,
    ),
    Mutant(
        "separability by distances and not by their squares",
        "codegen/runtime/values.py",
        "np.maximum(-told.y * w, 0.0) ** 2",
        "np.maximum(-told.y * w, 0.0)",
        separable,
    ),
    Mutant(
        "moments of the label's table without the curvature",
        "codegen/runtime/location.py",
        "bend = moments[2] / deviation**2 - slope * slope",
        "bend = moments[2] / deviation**2",
        likelihood,
    ),
]
