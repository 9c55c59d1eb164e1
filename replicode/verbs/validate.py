"""`validate`: attention trained on sampled data against the theory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from replicode.cache import work_ledger
from replicode.inputs.arguments import INITS, error_asked, one_of, point
from replicode.inputs.learned import LABELS, LOSS, ModelTexts, signal
from replicode.inputs.problem import problem
from replicode.inputs.spectrum import SpectrumLike, token_spectrum
from replicode.kinds import ActivationLike, Model, Task
from replicode.results import Report
from replicode.theory.lengths import Tokens, lengths
from replicode.theory.limits import whole_number
from replicode.verbs.solve import solve

LEAST_DIM, LEAST_SEEDS = 40, 2


def validate(
    act: ActivationLike,
    *,
    task: str | Task = "spiked",
    tokens: Tokens,
    alpha: float,
    nu: float | None = None,
    noise: float = 0.0,
    lambda_k: float = 1.0,
    lambda_v: float = 1.0,
    loss: str = LOSS,
    labels: str = LABELS,
    digits: int | None = None,
    init: str = "informed",
    dim: int = 400,
    seeds: int = 40,
    root_seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
    model: Model | None = None,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
    parameters: Mapping[str, float] | None = None,
    **more: float,
) -> Report:
    """Train attention at D/4, D/2 and D, extrapolate in 1/D and compare all seven quantities with the theory.

    Trainings with another `root_seed` draw other random numbers. With a spectrum the dimensions are multiples of its
    own, at which every eigenvalue has so many copies: the theory is the same at all of them.
    """
    error_asked(digits)
    at: dict[str, Any] = point(alpha, signal(act, nu), noise, lambda_k, lambda_v)
    options = {"digits": None if digits is None else int(digits), "init": one_of("init", init, INITS)}
    dim, seeds = whole_number("dim", dim, LEAST_DIM), whole_number("seeds", seeds, LEAST_SEEDS)
    root_seed = whole_number("root_seed", root_seed, 0)
    law, data = lengths(tokens), token_spectrum(spectrum, teacher)
    dims = (dim // 4, dim // 2, dim) if data is None else multiples(data.dim, dim)
    from replicode.validation.experiment import report, run
    from replicode.validation.ledger import training_source
    from replicode.validation.statistics.controls import controls_of
    from replicode.validation.statistics.measure import QUANTITIES
    from replicode.validation.studies.cost import check_cost

    check_cost(law, at["alpha"], dims, seeds)
    posed = problem(act, task, law, at, parameters, more, ModelTexts(model, loss, labels, data))
    solution = solve(act, **posed.arguments(), digits=digits, init=init, rsb=0)
    attention, signature = posed.attention(), posed.module.METADATA["signature"]
    content: list[Any] = [training_source(), signature, sorted(posed.own.items()), at, init]
    content += [] if data is None else [data.digest]
    experiment = run(
        attention.setting(at["alpha"]),
        attention,
        (at["lambda_k"], at["lambda_v"]),
        attention.start(init),
        attention.risk,
        dims,
        seeds,
        root_seed,
        progress=progress,
        controls=controls_of(attention),
        kept=work_ledger("trained", *content),
    )
    fields = solution._asdict() | dict(solution.order_parameters)
    theory = {q: float(fields[q]) for q in QUANTITIES if q in fields}
    errors = {**solution.errors, "test_risk": solution.error}
    found: dict[str, Any] = report(theory, experiment, {q: errors[q] for q in theory})
    found["dims"] = tuple(found["dims"])
    found["warnings"] = (*solution.warnings, *found["warnings"])
    options |= {"dim": dim, "seeds": seeds, "root_seed": root_seed}
    return Report(**found, bayes_risk=solution.bayes_risk, asked=posed.asked(**options))


def multiples(base: int, dim: int) -> tuple[int, ...]:
    """Multiples of the dimension of a spectrum: about D/4, D/2 and D, and its own dimension at least."""
    copies = max(1, dim // base)
    return tuple(base * n for n in sorted({max(1, copies // 4), max(1, copies // 2), copies}))
