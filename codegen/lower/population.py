"""The population level: what is derived of an activation and a task, and the parts of the run-time that average.

Averages: A = E sigma_eps and B = E sum sigma^2 one token at a time where they factorise (runtime/onetoken.py,
threshold.py, by the tables of products.py), else over all tokens (alltokens.py). Update: the search for the least risk
(runtime/optimum.py, population_solver.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from replicode.codegen.ir import Function, LengthIR, Level, ModuleIR
from replicode.codegen.lower import equations
from replicode.codegen.lower.kernels import sigma_kernel, stable_form
from replicode.codegen.lower.module import averaging_choices, places, without
from replicode.codegen.lower.products import ProductTables
from replicode.codegen.lower.stamp import (
    INNER,
    OVER_SAMPLES,
    constants_of,
    provenance_of,
    signature_of,
    suffix,
    told_lengths,
)
from replicode.theory.derive.factorised import ratio
from replicode.theory.derive.location import Location, any_location, location
from replicode.theory.derive.population import PopulationSystem, averages_of_tokens
from replicode.theory.errors import Refusal
from replicode.theory.language.activation import Activation
from replicode.theory.properties.kinks import piecewise

FIXED = ("population_risk", "risk_of_overlaps")
PUBLIC = ("METADATA", "Solution", "averages_at", "location_gain", "optimum", *FIXED, "solve")
LEVEL = Level(
    parts=(
        *("kernel", "lengths", "nodes", "linear", "refinement", "places", "inputs", "wording", "location", "label"),
        *("population_kernel", "population", "tokenwise", "kinks", "onetoken", "threshold", "alltokens", "optimum"),
        *("population_solver", "options", "script"),
    ),
    public=PUBLIC,
    inner=INNER,
    legend="""
Legend. Blocks: k (scores) and v (values). Overlaps of a block: m, that with its teacher, q, its squared norm. chi are
the scores of the tokens of a sequence. Token 0, `eps`, is the hidden one; `l` stands for any of the others, the idle
ones. sigma is the activation, A = E sigma_eps and B = E sum sigma^2, E being the average over sequences. With the best
v the excess risk is a multiple of 1 - A^2/B, and the gain A^2/B is what k and free parameters make as large as it gets.
""",
    derived=OVER_SAMPLES,
)


def lower_population(system: PopulationSystem) -> ModuleIR:
    """Everything that is emitted for a derived system."""
    law = told_lengths(system.lengths)
    place, functions, seams, level = _of_fixed_estimators(system)
    signature = signature_of(system, "population", LEVEL.parts)
    resolved = not system.properties.smooth and level is LEVEL
    shape = piecewise(system.activation) if resolved else system.activation
    lengths = tuple(_length(system, shape, tokens, share) for tokens, share in law.shares)
    risk = {"Risk, cross overlaps zero": (str(system.risk.on_manifold),)}
    tables, ways = _averages(system, place)
    return ModuleIR(
        level=level,
        provenance=provenance_of(system, "Population risk", signature, lengths, risk),
        parameters=system.activation.parameters,
        constants={
            **constants_of(system, "population", signature),
            "LOCATION": place.kind,
            "HARD_LIMIT": place.hard,
            **places(system.model),
        },
        lengths=lengths,
        moments=(),
        functions=(
            *equations.location_functions(place),
            *equations.population_functions(system.risk, place.weighted),
            *equations.weight_functions(system.task),
            *functions,
            *tables.all(),
        ),
        choices={**seams, **ways, "OPTIONS": "(parameter_options,)"},
    )


def _of_fixed_estimators(system: PopulationSystem) -> tuple[Location, Sequence[Function], dict[str, str], Level]:
    """What the risk of any estimator takes; none of it where the weight or the kinks are beyond its averages."""
    assert system.lengths is not None
    try:
        place = location(system.task)
        kinks = [] if system.properties.smooth else [equations.kinks(system)]
    except Refusal:
        return any_location(system.task), (), {}, without(LEVEL, *FIXED)
    functions = [*equations.ratio_functions(system, ratio(system.activation)), *kinks]
    return place, functions, averaging_choices(system, place, system.lengths), LEVEL


def _averages(system: PopulationSystem, place: Location) -> tuple[ProductTables, dict[str, str]]:
    """Tables of products where averages factorise over the tokens, and which way each of the averages takes."""
    found, tables = (
        averages_of_tokens(system.activation, system.task, bool(place.hard)),
        ProductTables(*equations.parameters_of(system)),
    )
    for name, products in found.items():
        if products is not None:
            tables.add(f"{name}_products", products)
    ways = {
        "soft_averages": "sampled" if found["activation"] is None else "factorised",
        "hard_averages": "sampled" if found["winner"] is None else "by_threshold",
        "posterior_averages": "sampled_posterior" if found["posterior"] is None else "factorised_posterior",
    }
    if not place.hard:
        ways["hard_averages"] = ways["soft_averages"]
    if not system.properties.smooth:
        ways["SMOOTH_SCORES"] = "False"
    return tables, ways


def _length(system: PopulationSystem, shape: Activation, tokens: int, share: float) -> LengthIR:
    """The activation at one number of tokens, `shape` being how it is evaluated."""
    stable = stable_form(shape, tokens)
    return LengthIR(
        tokens,
        share,
        suffix(told_lengths(system.lengths), tokens),
        0,
        (sigma_kernel(stable),),
        None,
        equations.row_sum(system, tokens, system.properties.row_sum),
    )
