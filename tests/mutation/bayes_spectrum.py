"""Small faults of the Bayes-optimal level with a spectrum, each with the tests that must notice it."""

from mutation.jobs import Checks, Mutant


def _checks(*names: str) -> tuple[Checks, ...]:
    return (Checks("oracle/test_bayes_spectrum.py", tuple(f"test_{name}" for name in names)),)


formula = _checks("the_prior_by_its_formula")
PRIOR, RUNTIME = "theory/derive/bayes_prior.py", "codegen/runtime/bayes_prior.py"

BAYES_SPECTRUM = [
    Mutant(
        "the field of a coordinate as if its variance were one",
        PRIOR,
        "field_variance = strength**2 * variance + strength",
        "field_variance = strength**2 + strength",
        formula,
    ),
    Mutant(
        "overlap of a coordinate without its factor of two",
        PRIOR,
        "known = sp.factor(2 * sp.diff(entropy, strength))",
        "known = sp.factor(sp.diff(entropy, strength))",
        formula,
    ),
    Mutant(
        "what is not known of a coordinate out of one, not out of its variance",
        PRIOR,
        "unknown = sp.factor(variance - known)",
        "unknown = sp.factor(1 - known)",
        formula,
    ),
    Mutant(
        "means over the coordinates of positive eigenvalue alone",
        RUNTIME,
        "return [float(term.sum()) / dim for term in coordinate_prior_terms(qh, c)]",
        "return [float(term.mean()) for term in coordinate_prior_terms(qh, c)]",
        _checks("a_teacher_in_half_of_the_coordinates"),
    ),
    Mutant(
        "all coordinates left to find, also those the teacher lacks",
        RUNTIME,
        "return revealed_contraction(alpha) * float((spectrum.c_v > 0.0).sum()) / spectrum.dim",
        "return revealed_contraction(alpha)",
        _checks("a_teacher_in_half_of_the_coordinates_is_recovered_at_half_the_alpha"),
    ),
    Mutant(
        "psi of the free entropy with half its logarithm",
        "codegen/lower/bayes.py",
        "value = _entropy(system).xreplace(psi)",
        "value = _entropy(system).xreplace(psi) - sum(psi.values()) / 2",
        formula,
    ),
]
