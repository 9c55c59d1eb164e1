"""`validate --embeddings`: theory, Gaussian surrogate and real tokens, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from replicode.inputs.arguments import INITS, error_asked, one_of, point
from replicode.inputs.learned import ModelTexts
from replicode.inputs.problem import problem
from replicode.inputs.spectrum import TokenSpectrum, teacher_weights
from replicode.kinds import ActivationLike, Task
from replicode.results import Result
from replicode.theory.errors import InputError
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.limits import whole_number
from replicode.verbs.solve import solve

RADIAL = ("gaussian", "empirical")
RADIAL_DIGITS = 3
SMALL_ERROR = 0.01  # of the theory, relative to the test risk


@dataclass(frozen=True, repr=False)
class EmbeddingsReport(Result):
    """Three columns, quantity by quantity: `theory`, and trained on the `surrogate` and on `real` tokens.

    `difference` is real less surrogate: its dimension and teachers are the same, so that no finite-size correction is
    in it. It decides the verdict, together with an allowance of 1 per cent.
    """

    headline = ("verdict", "p_value", "dim", "seeds")

    theory: Mapping[str, float]
    theory_error: Mapping[str, float]
    surrogate: Mapping[str, Mapping[str, float]]
    real: Mapping[str, Mapping[str, float]]
    difference: Mapping[str, Mapping[str, float]]
    diagnostics: Mapping[str, float | None]
    dim: int
    seeds: int
    failures: int
    verdict: str
    p_value: float
    power: float
    effective_rank: float


def validate_embeddings(
    act: ActivationLike,
    embeddings: Any,
    *,
    task: str | Task = "max",
    tokens: Tokens,
    alpha: float,
    nu: float,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    digits: int | None = None,
    init: str = "informed",
    seeds: int = 20,
    normalise: str | None = None,
    radial: str = "gaussian",
    teacher: str = "isotropic",
    root_seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> EmbeddingsReport:
    """Train on real tokens and on Gaussian ones of the same covariance, and compare both with the theory.

    `embeddings` is a .npy file, or an array, of one token a row. Tokens are centred and their covariance is divided by
    its mean eigenvalue. With radial="empirical" theory and surrogate have the tokens' own radii.
    """
    error_asked(digits)
    at: dict[str, Any] = point(alpha, nu, noise, lambda_k, lambda_v)
    one_of("init", init, INITS)
    one_of("radial", radial, RADIAL)
    root_seed = whole_number("root_seed", root_seed, 0)
    seeds, law = whole_number("seeds", seeds, 2), lengths(tokens)
    if law.fixed is None:
        raise InputError("tokens", str(law), "one number of tokens: sequences of real tokens have a fixed length")
    import numpy as np

    from replicode.theory.language.task import task as task_of
    from replicode.validation.data.pool import pool_of, read_pool
    from replicode.validation.studies import embeddings as study_of

    read = read_pool if isinstance(embeddings, str) or hasattr(embeddings, "__fspath__") else pool_of
    pool = read(embeddings, normalise)
    samples = max(1, round(at["alpha"] * pool.dim))
    study_of.check_pool(pool, samples, law.fixed)
    rng = np.random.default_rng([root_seed, pool.dim])
    teachers = study_of.teachers_of(teacher_weights(pool.s, teacher), pool.s, rng)
    data = TokenSpectrum(teachers.columns(pool.s), str(embeddings) if read is read_pool else "an array", teacher)
    posed = problem(act, task, law, at, parameters, more, texts=ModelTexts(spectrum=data))
    attention = posed.attention()
    assert attention.coordinates is not None
    study = study_of.Study(
        attention,
        (at["lambda_k"], at["lambda_v"]),
        task_of(task).at(law),
        law.fixed,
        samples,
        teachers,
        attention.coordinates,
        init,
    )
    share = study_of.tilted_share(pool, study)
    empirical = radial == "empirical"
    drawn = pool.radii if empirical else None
    asked = problem(act, task, law, at, parameters, more, texts=ModelTexts(spectrum=data, radii=drawn))
    solution = solve(
        act, **asked.arguments(), digits=RADIAL_DIGITS if empirical and digits is None else digits, init=init
    )
    # Where no error was asked for, a small one is in every comparison, and no cause for a warning.
    small = empirical and digits is None and solution.error < SMALL_ERROR * solution.test_risk
    notes = [w for w in solution.warnings if not (small and w.startswith("error:"))]
    theory, errors = _theory(solution)
    surrogate, real = study_of.run(pool, study, seeds, empirical, root_seed, progress)
    found = study_of.compare(theory, errors, surrogate, real)
    options = {"normalise": normalise, "radial": radial, "seeds": seeds, "init": init}
    options |= {"digits": digits, "root_seed": root_seed}
    return EmbeddingsReport(
        theory=theory,
        theory_error=errors,
        surrogate=found.surrogate,
        real=found.real,
        difference=found.difference,
        diagnostics=study_of.diagnostics(pool, share),
        dim=pool.dim,
        seeds=seeds,
        failures=surrogate.failures + real.failures,
        verdict=found.verdict,
        p_value=found.p_value,
        power=found.power,
        effective_rank=float(solution.effective_rank or 0.0),
        warnings=(*notes, *found.warnings, *study_of.diagnosis(pool, empirical)),
        asked=posed.asked(**options),
    )


def _theory(solution: Any) -> tuple[dict[str, float], dict[str, float]]:
    """All quantities with their errors."""
    from replicode.validation.statistics.measure import QUANTITIES

    fields = solution._asdict() | dict(solution.order_parameters)
    bounds = {**solution.errors, "test_risk": solution.error}
    return {q: float(fields[q]) for q in QUANTITIES}, {q: float(bounds[q]) for q in QUANTITIES}
