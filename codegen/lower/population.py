"""The population level: what is derived of an activation and a task, and the parts of the run-time that average.

Averages: A = E sigma_eps and B = E sum sigma^2 at given overlaps (runtime/population.py). Update: the search for the
least risk (runtime/optimum.py, runtime/population_solver.py).
"""

from __future__ import annotations

from replicode.codegen.ir import LengthIR, Level, ModuleIR
from replicode.codegen.lower import equations
from replicode.codegen.lower.kernels import sigma_kernel, stable_form
from replicode.codegen.lower.module import averaging_choices, places
from replicode.codegen.lower.stamp import constants_of, provenance_of, signature_of
from replicode.theory.derive.factorised import ratio
from replicode.theory.derive.location import location
from replicode.theory.derive.population import PopulationSystem
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.nodes import X
from replicode.theory.properties.kinks import piecewise

PUBLIC = ("METADATA", "Solution", "population_risk", "risk_of_overlaps", "solve")
LEVEL = Level(
    parts=(
        *("kernel", "lengths", "nodes", "linear", "places", "inputs", "wording", "location", "label"),
        *("population", "tokenwise", "kinks", "optimum", "population_solver", "options", "script"),
    ),
    public=PUBLIC,
    entries=(*PUBLIC, "KERNELS", "PARAMETERS", "LOCATION", "ArgumentError", "OutOfReach", "__main__"),
    legend="""
Legend. Blocks: k (scores) and v (values). Overlaps of a block: m, that with its teacher, q, its squared norm. chi are
the scores of the tokens of a sequence. Token 0, `eps`, is the hidden one; `l` stands for any of the others, the idle
ones. sigma is the activation, A = E sigma_eps and B = E sum sigma^2, E being the average over sequences. With the best
v the excess risk is a multiple of 1 - A^2/B, and the gain A^2/B is what k and free parameters make as large as it gets.
""",
    derived=(
        "What is derived of this activation and task: arrays have the tokens along axis 0, the samples along axis 1."
    ),
)


def lower_population(system: PopulationSystem) -> ModuleIR:
    """Everything that is emitted for a derived system."""
    if system.lengths is None:
        raise InputError("tokens", None, "a number of tokens, or a distribution such as 1:0.2,2:0.3,3:0.5")
    if not system.activation.expr.has(X):
        raise Refusal(f"{system.activation.text} does not depend on the scores: there is no k to look for")
    place, smooth = location(system.task), bool(system.properties.smooth)
    signature = signature_of(system, "population", LEVEL.parts)
    shares = zip(system.lengths.tokens, system.lengths.weights, strict=True)
    lengths = tuple(_length(system, tokens, share) for tokens, share in shares)
    risk = {"Risk, cross overlaps zero": (str(system.risk.on_manifold),)}
    return ModuleIR(
        level=LEVEL,
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
            *equations.ratio_functions(system, ratio(system.activation)),
            *([] if smooth else [equations.kinks(system)]),
        ),
        choices=averaging_choices(system, place, system.lengths) | {"add_options": "population_options"},
    )


def _length(system: PopulationSystem, tokens: int, share: float) -> LengthIR:
    """The activation at one number of tokens."""
    suffix = "" if system.lengths is not None and system.lengths.fixed is not None else f"_{tokens}"
    stable = stable_form(system.activation if system.properties.smooth else piecewise(system.activation), tokens)
    return LengthIR(
        tokens,
        share,
        suffix,
        0,
        (sigma_kernel(stable),),
        None,
        equations.row_sum(system, tokens, system.properties.row_sum),
    )
