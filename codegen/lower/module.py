"""A derived system as one ModuleIR: its functions, its flags, and the parts of the run-time that it needs."""

from __future__ import annotations

import hashlib

import sympy as sp

from replicode.codegen.ir import IR_VERSION, LengthIR, Level, ModuleIR, Provenance
from replicode.codegen.link import parts_text
from replicode.codegen.lower import equations
from replicode.codegen.lower.kernels import lower
from replicode.codegen.pair import expansion_program
from replicode.codegen.unrolled import UNROLLED_TOKENS
from replicode.theory.derive.curvature import derivable, derive_curvature
from replicode.theory.derive.population import population_risk
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.errors import InputError, Refusal
from replicode.theory.language.nodes import X
from replicode.theory.lengths import Lengths
from replicode.theory.model import Model

EMITTER_VERSION = "0.5"
EXPANSION = "expansion"
PUBLIC = (
    "METADATA",
    "Solution",
    "free_coordinates",
    "free_energy",
    "jacobian",
    "linearised_map",
    "population_risk",
    "residual",
    "risk_of_overlaps",
    "solve",
)
LEVEL = Level(
    parts=(
        *("kernel", "lengths", "nodes", "linear", "places", "inputs", "wording", "location", "fields", "prox"),
        *("channel", "proxfree", "rows", "onsets", "folds", "gaps", "mixture", "population", "hessian"),
        *(
            "fixedpoint",
            "states",
            "routes",
            "sensitivity",
            "following",
            "solver",
            "energy",
            "jacobian",
            "kinks",
            "options",
            "script",
        ),
    ),
    public=PUBLIC,
    entries=(*PUBLIC, "KERNELS", "PARAMETERS", "LOCATION", "ArgumentError", "OutOfReach", "__main__"),
    legend="""
Legend. Blocks: k (scores) and v (values). Order parameters of a block: m, the overlap with its teacher, q, its squared
norm, V, its response; mh, qh and Vh are their conjugates. Fields of a sequence: w_chi and w_z of its tokens, and the
label y. Token 0, `eps`, is the hidden one; `l` stands for any of the others, the idle ones. chi is the prox point of
the scores; z, that of the values, is eliminated. G = (prox - w)/V is minus the slope of the Moreau envelope M. E is the
average over the fields, EM that of M, dEM_a its derivative in a. sigma is the activation, A = E sigma_eps and
B = E sum sigma^2. S is the slope of the logarithm of the location's weight, where that is not in the law of the fields.
A fold is where the map from prox points to fields turns back: there the prox jumps.
""",
    derived=(
        "What is derived of this activation and task: arrays have the tokens along axis 0, the samples along axis 1."
    ),
)


def lower_module(system: SaddleSystem) -> ModuleIR:
    """Everything that is emitted for a derived system."""
    if system.lengths is None:
        raise InputError("tokens", None, "a number of tokens, or a distribution such as 1:0.2,2:0.3,3:0.5")
    if not system.activation.expr.has(X):
        raise Refusal(f"{system.activation.text} does not depend on the scores: there is no k to solve for")
    lengths = tuple(lower_length(system, tokens, weight) for tokens, weight in _shares(system.lengths))
    moments = equations.channel_moments(system)
    signature = system_signature(system)
    operations = {f"{k.name}{n.suffix}": k.operations() for n in lengths for k in n.kernels}
    return ModuleIR(
        level=LEVEL,
        provenance=_provenance(system, signature, operations),
        parameters=system.activation.parameters,
        constants=_constants(system, signature, len(moments.moments)),
        lengths=lengths,
        moments=tuple(moments.moments.values()),
        functions=(
            *equations.location_functions(system.location),
            *equations.laws(system),
            equations.channel_rates(system),
            *equations.moment_functions(system, moments),
            *equations.saddle_maps(system),
            *equations.curvature_functions(derive_curvature(system), system.model),
            *equations.sensitivity_functions(system),
            equations.stability_function(system.model),
            *equations.population_functions(population_risk(system.task, system.model), system.location.weighted),
            *([] if system.properties.smooth else [equations.kinks(system)]),
        ),
        choices=choices(system, system.lengths),
    )


def _shares(lengths: Lengths) -> list[tuple[int, float]]:
    return list(zip(lengths.tokens, lengths.weights, strict=True))


def lower_length(system: SaddleSystem, tokens: int, share: float = 1.0) -> LengthIR:
    """What belongs to one number of tokens, which is the system's own or one of its lengths."""
    kernels = lower(system, tokens).kernels
    first = 1 if system.properties.shift_invariant else 0
    (whole,) = [k for k in kernels if k.name == EXPANSION]
    return LengthIR(
        tokens=tokens,
        share=share,
        suffix=f"_{tokens}" if system.tokens is None else "",
        first=first,
        kernels=kernels,
        expansion=expansion_program(system, whole, tokens, first) if tokens <= UNROLLED_TOKENS else None,
        row_sum=equations.row_sum(system, tokens),
    )


def system_signature(system: SaddleSystem) -> str:
    """Hash of the canonical expressions, IR version, options and run-time source; names do not enter."""
    parts = [
        sp.srepr(system.activation.expr),
        repr(sorted(system.activation.values.items())),
        sp.srepr(system.task.log_weight),
        repr(system.lengths),
        system.model.key,
        f"{IR_VERSION} {EMITTER_VERSION} {sp.__version__}",
        parts_text(LEVEL.parts),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _provenance(system: SaddleSystem, signature: str, operations: dict[str, int]) -> Provenance:
    return Provenance(
        title=f"Replica theory of {system.activation.name} attention",
        about={
            "activation": system.activation.text,
            "task": f"log-weight {system.task.text}",
            "tokens": str(system.lengths),
        },
        signature=signature,
        operations=operations,
        equations={
            "Free energy, with EM the average of the Moreau envelope M": (str(system.free_energy),),
            "Saddle-point equations": tuple(f"{name} = {expr}" for name, expr in system.equations().items()),
        },
    )


def _constants(system: SaddleSystem, signature: str, moments: int) -> dict[str, object]:
    found, parameters = system.properties, system.activation.parameters
    metadata = {
        "activation": system.activation.text,
        "name": system.activation.name,
        "task": system.task.text,
        "tokens": str(system.lengths) if system.tokens is None else system.tokens,
        "parameters": list(parameters),
        "signature": signature,
        "versions": {"emitter": EMITTER_VERSION, "ir": IR_VERSION, "sympy": sp.__version__},
        "options": {"loss": str(system.model.loss), "penalty": str(system.model.penalty)},
    }
    return {
        "METADATA": metadata,
        "PARAMETERS": parameters,
        "DEFAULTS": {name: float(value) for name, value in sorted(system.activation.values.items())},
        "SHIFT_INVARIANT": bool(found.shift_invariant),
        "ELEMENTWISE": bool(found.elementwise),
        "EVEN_LOSS": system.even,
        "MOMENTS": moments,
        "LOCATION": system.location.kind,
        "HARD_LIMIT": system.location.hard,
        **places(system.model),
    }


def places(model: Model) -> dict[str, object]:
    """Names of the order parameters, and where those of the scores and of the values stand."""
    if (names := (model.scores.name, model.values.name)) != ("k", "v"):
        raise Refusal(f"blocks {', '.join(names)}: those of a generated module are called k (scores) and v (values)")
    symbols = [s for b in (model.scores, model.values) for s in (b.m, b.q, b.V)]
    return {
        "ORDER_NAMES": tuple(s.name for s in model.order_parameters),
        "CONJUGATE_NAMES": tuple(s.name for s in model.conjugates),
        **{s.name.upper(): model.index(s) for s in (*symbols, model.scores.Vh)},
    }


def choices(system: SaddleSystem, lengths: Lengths) -> dict[str, str]:
    """What stands at each seam of the run-time: only what a system needs is linked."""
    kind, smooth = system.location.kind, bool(system.properties.smooth)
    scores = [n - bool(system.properties.shift_invariant) for n in lengths.tokens]
    rows = 1 in scores and kind != "normalised"
    several = len(lengths.tokens) > 1
    sampled = "limited_location" if system.location.hard else "sampled_location"
    locations = {"gaussian": "None", "own": "own_location", "ranked": "ranked_location", "normalised": sampled}
    second = "derived_second" if derivable(system) else "differenced_second"
    state, averages = ("folded_state" if rows and max(scores) == 1 else "smooth_state"), "smooth_averages"
    routes = [state, "folded_averages" if rows else averages, second, "coarse_prox", "smooth_branch"]
    if not smooth:
        routes = ["kinked_state", "kinked_averages", second, "kinked_coarse", "coarse_branch"]
    return {
        "ROUTES": f"Routes({', '.join(routes)})",
        "followed_on": "prox_free_nodes" if smooth else "no_nodes",
        "derived_rates": "second_rates" if derivable(system) else "no_second_rates",
        "linearised": "derived_or_differenced" if derivable(system) else "differenced",
        "averages_of_length": "_doubled_averages" if smooth else "panel_averages",
        "risk_of_length": "_weighted_risk" if system.location.weighted else "_gaussian_risk",
        "location_at": locations[kind],
        "teacher_weight": "own_teacher" if kind == "own" else "softmax_teacher",
        "mixed": "mixture" if several else "alone",
        "mixed_ladder": "mixture_ladder" if several else "alone",
        "parts_of": "mixture_parts" if several else "one_part",
    }
