"""A derived system as one ModuleIR: its functions, its flags, and the parts of the run-time that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from replicode.codegen.ir import LengthIR, Level, ModuleIR, Provenance
from replicode.codegen.lower import equations
from replicode.codegen.lower.kernels import lower
from replicode.codegen.lower.stamp import (
    INNER,
    OVER_SAMPLES,
    ActivationSystem,
    constants_of,
    provenance_of,
    signature_of,
    told_lengths,
)
from replicode.codegen.rewrite.pair import expansion_program
from replicode.codegen.rewrite.unrolled import UNROLLED_TOKENS
from replicode.theory.derive.curvature import derivable, derive_curvature
from replicode.theory.derive.factorised import ratio
from replicode.theory.derive.label import LabelLaw, label_kinks
from replicode.theory.derive.location import Location
from replicode.theory.derive.saddle import SaddleSystem
from replicode.theory.errors import Refusal
from replicode.theory.lengths import Lengths
from replicode.theory.model import Model
from replicode.theory.properties.loss import is_smooth

EXPANSION = "expansion"
TRAINED = "sample_options, training_options, parameter_options"
STRUCTURED = {
    **{name: f"spectral_{name}" for name in ("spectrum_of", "traces_at", "image_at", "softness_at", "norms_at")},
    **{"OPTIONS": f"({TRAINED}, spectrum_options)", "READERS": "(with_spectrum,)"},
}
RADIAL = {
    **{"radii_of": "empirical_radii", "scrambled": "radial_scrambled", "risk_at": "radial_risk"},
    **{"label_moments": "no_moments", "tested": "untested"},
    "ROUTES": "Routes(_ensemble, radial_averages, never_whole, coarse_radial, coarse_branch)",
    **{"OPTIONS": f"({TRAINED}, radii_options)", "READERS": "(with_radii,)"},
    "averages_of_length": "_doubled_averages",
}
PUBLIC = (
    *("METADATA", "Solution", "free_coordinates", "free_energy", "jacobian", "linearised_map", "population_risk"),
    *("residual", "risk_of_overlaps", "solve"),
)
LEVEL = Level(
    parts=(
        *("kernel", "lengths", "nodes", "linear", "driver", "refinement", "lowrank", "places", "inputs", "wording"),
        *("location", "label", "loss", "fields", "prox", "prior", "channel", "aligned", "proxfree", "rows", "onsets"),
        *("folds", "gaps", "critical", "signed", "controls", "seeking", "contact", "searched", "mixture"),
        *("population", "tokenwise", "hessian", "spectrum", "radial", "fixedpoint", "states", "routes"),
        *("sensitivity", "searching", "following", "solver", "energy", "kinks", "values", "tested", "spectrum_text"),
        *("options", "script"),
    ),
    public=PUBLIC,
    inner=INNER,
    legend="""
Legend. Blocks: k (scores) and v (values). Order parameters of a block: m, the overlap with its teacher, q, its squared
norm, V, its response; mh, qh and Vh are their conjugates. Fields of a sequence: w_chi and w_z of its tokens, and the
label y. Token 0, `eps`, is the hidden one; `l` stands for any of the others, the idle ones. chi is the prox point of
the scores; z, that of the values, is eliminated. G = (prox - w)/V is minus the slope of the Moreau envelope M. E is the
average over the fields, EM that of M, dEM_a its derivative in a. sigma is the activation, A = E sigma_eps and
B = E sum sigma^2. S is the slope of the logarithm of the location's weight, where that is not in the law of the fields.
A fold is where the map from prox points to fields turns back: there the prox jumps.
""",
    derived=OVER_SAMPLES,
)


def without(level: Level, *names: str) -> Level:
    """The level without some of its public names."""
    return replace(level, public=tuple(n for n in level.public if n not in names))


def lower_module(system: SaddleSystem) -> ModuleIR:
    """Everything that is emitted for a derived system."""
    law = told_lengths(system.lengths)
    if not system.model.weighs_values:
        told = "solved for sigma*w alone; what multiplies w belongs into the activation, which is the same problem"
        raise Refusal(f"output {system.model.output}: {told}")
    lengths = tuple(lower_length(system, tokens, weight) for tokens, weight in law.shares)
    moments = equations.channel_moments(system)
    signature = signature_of(system, "rs", LEVEL.parts)
    return ModuleIR(
        level=without(LEVEL, *_absent(system)),
        provenance=_provenance(system, signature, lengths),
        parameters=system.activation.parameters,
        constants=_constants(system, signature, len(moments.moments)),
        lengths=lengths,
        moments=tuple(moments.moments.values()),
        functions=(
            *equations.location_functions(system.location),
            *equations.label_functions(system.label, system.model.values.teacher),
            *equations.loss_functions(system),
            *equations.laws(system),
            equations.channel_rates(system),
            *equations.moment_functions(system, moments),
            *equations.saddle_maps(system),
            *equations.spectral_functions(system),
            *equations.curvature_functions(derive_curvature(system), system.model),
            *equations.sensitivity_functions(system),
            equations.stability_function(system.model),
            *equations.risk_functions(system),
            *equations.ratio_functions(system, ratio(system.activation)),
            *equations.residual_functions(system),
            *([] if system.properties.smooth else [equations.kinks(system)]),
        ),
        choices=choices(system, law),
    )


def _absent(system: SaddleSystem) -> tuple[str, ...]:
    """Public names that a system has nothing for: the risk of tokens with radii asks for these too."""
    differences = () if equations.differentiable(system) else ("free_coordinates", "linearised_map")
    return (*differences, *(("population_risk", "risk_of_overlaps") if system.model.radial else ()))


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
        row_sum=equations.row_sum(system, tokens, system.balance),
    )


def _provenance(system: SaddleSystem, signature: str, lengths: Sequence[LengthIR]) -> Provenance:
    shown = {
        "Free energy, with EM the average of the Moreau envelope M": (str(system.free_energy),),
        "Saddle-point equations": tuple(f"{name} = {expr}" for name, expr in system.equations().items()),
    }
    return provenance_of(system, "Replica theory", signature, lengths, shown)


def _constants(system: SaddleSystem, signature: str, moments: int) -> dict[str, object]:
    return {
        **constants_of(system, "rs", signature),
        "EVEN_LOSS": system.even,
        "MOMENTS": moments,
        "LOCATION": system.location.kind,
        **label_constants(system.label),
        **_kink_constants(system),
        "HARD_LIMIT": system.location.hard,
        **places(system.model),
    }


def _kink_constants(system: SaddleSystem) -> dict[str, object]:
    """Where the label has kinks, and whether it or the loss has any."""
    kinks = tuple(map(float, label_kinks(system.label, system.model)))
    jumps = not is_smooth(system.model.loss)
    return {**({"LABEL_KINKS": kinks} if kinks else {}), **({"ONE_SIDED": True} if kinks or jumps else {})}


def places(model: Model) -> dict[str, object]:
    """Names of the order parameters, and where those of the scores and of the values stand."""
    blocks = (*([model.scores] if model.has_scores else []), model.values)
    if (names := [b.name for b in blocks]) not in (["k", "v"], ["v"]):
        raise Refusal(f"blocks {', '.join(names)}: those of a generated module are called k (scores) and v (values)")
    symbols = [s for b in blocks for s in (b.m, b.q, b.V)]
    symbols += [model.scores.Vh] if model.has_scores else []
    return {
        "ORDER_NAMES": tuple(s.name for s in model.order_parameters),
        "CONJUGATE_NAMES": tuple(s.name for s in model.conjugates),
        **{s.name.upper(): model.index(s) for s in symbols},
    }


def label_constants(told: LabelLaw) -> dict[str, object]:
    """What a label that is no field has: its own normals, its values, its branches, and how often each is taken."""
    if not told.weighted:
        return {}
    normals = {"threshold": 0, "chances": 0, "lines": 1, "sampled": 2}
    return {
        "LABEL_NORMALS": normals[told.kind],
        "LABEL_VALUES": tuple(map(float, told.values or ())),
        "LABEL_BRANCHES": 1 if told.mirrored else len(told.branches),
        "LABEL_COPIES": 2.0 if told.mirrored else 1.0,
    }


def averaging_choices(system: ActivationSystem, place: Location, lengths: Lengths) -> dict[str, str]:
    """What stands at the seams of the population averages: nodes for the activation, and the location's weight."""
    sampled = "limited_location" if place.hard else "sampled_location"
    locations = {"gaussian": "None", "own": "own_location", "ranked": "ranked_location"}
    averages = _averages(system, place, lengths)
    return {
        "averages_of_length": averages,
        **({"rough_moments": "tokenwise_moments"} if averages == "tokenwise_averages" else {}),
        "risk_of_length": "_weighted_risk" if place.weighted else "_gaussian_risk",
        "location_at": locations.get(place.kind, sampled),
        "teacher_weight": "own_teacher" if place.kind == "own" else "softmax_teacher",
    }


def _averages(system: ActivationSystem, place: Location, lengths: Lengths) -> str:
    """One token at a time where sigma and the weight factorise, unless nodes have one dimension anyway."""
    shape = system.properties
    if not shape.smooth:
        return "panel_averages"
    dimensions = max(lengths.tokens) - bool(shape.shift_invariant)
    alone = shape.elementwise and place.kind in ("gaussian", "own")
    several = dimensions > 1 and not alone and ratio(system.activation) is not None
    return "tokenwise_averages" if several else "_doubled_averages"


def choices(system: SaddleSystem, lengths: Lengths) -> dict[str, str]:
    """What stands at each seam of the run-time: only what a system needs is linked."""
    several = len(lengths.tokens) > 1
    shared = {
        "mixed": "mixture" if several else "alone",
        "mixed_ladder": "mixture_ladder" if several else "alone",
        "parts_of": "mixture_parts" if several else "one_part",
        **_label_choices(system),
        **(STRUCTURED if system.model.structured else {}),
        **({} if equations.differentiable(system) else {"slopes_of": "no_slopes"}),
        **({} if system.values.convex else {"interval": "scanned_interval"}),
    }
    if equations.tested(system):
        shared |= {"tested": "tested_scores" if system.model.has_scores else "tested_values"}
    shared |= _score_choices(system, lengths) if system.model.has_scores else _value_choices(system)
    return shared | (_radial_choices(system) if system.model.radial else {})


def _radial_choices(system: SaddleSystem) -> dict[str, str]:
    """Those of tokens with radii."""
    if not (system.properties.smooth and system.model.has_scores):
        raise Refusal(f"radii: {system.activation.text} sees no scores or has kinks, with which radii are not taken")
    both = {"OPTIONS": f"({TRAINED}, spectrum_options, radii_options)", "READERS": "(with_radii, with_spectrum)"}
    return RADIAL | both if system.model.structured else RADIAL


def _value_choices(system: SaddleSystem) -> dict[str, str]:
    """Those of a system without scores."""
    model = system.model
    exists = "interpolating" if model.translated else "separating" if model.margin else "any_values"
    routes = ["value_state", "value_averages", "never_whole", "coarse_values", "coarse_branch"]
    return {
        "ROUTES": f"Routes({', '.join(routes)})",
        "linearised": "differenced",
        "derived_rates": "no_second_rates",
        "averages_of_length": "constant_averages",
        "risk_of_length": "_gaussian_risk" if equations.exact_risk(system) else "manifold_risk",
        "risk_at": "value_risk",
        "dimensions_of": "value_nodes",
        "_start": "value_start",
        "stability_of": "convex_stability",
        "admitted": exists,
    }


def _label_choices(system: SaddleSystem) -> dict[str, str]:
    """How the label is told from the fields."""
    if not system.label.weighted:
        return {}
    kinds = {
        "threshold": "threshold_label",
        "chances": "chance_label",
        "lines": "line_label",
        "sampled": "sampled_label",
    }
    several = len(system.label.branches) > 1 and not system.label.mirrored
    return {
        "label_at": kinds[system.label.kind],
        "label_moments": "told_moments",
        "value_dimensions": "told_dimensions",
        "value_covariance": "without_label",
        "branched": "branches" if several else "unbranched",
        "missed_labels": "missed_by_chance" if system.label.kind == "chances" else "missed_on_sides",
    }


def _score_choices(system: SaddleSystem, lengths: Lengths) -> dict[str, str]:
    kind, smooth = system.location.kind, bool(system.properties.smooth)
    scores = [n - bool(system.properties.shift_invariant) for n in lengths.tokens]
    plain = system.values.smooth and not system.label.weighted and system.model.square
    whole = "whole_channel" if derivable(system) else "never_whole"
    rows = 1 in scores and kind != "normalised" and plain
    beyond = "smooth_state" if system.label.weighted else "searched_folds_state"
    state, averages = ("folded_state" if rows and max(scores) == 1 else beyond), "smooth_averages"
    routes = [state, "folded_averages" if rows else averages, whole, "coarse_prox", "smooth_branch"]
    if not system.values.smooth:
        routes = ["prox_state", "prox_averages", whole, "coarse_prox", "coarse_branch"]
    if not smooth:
        if not plain:
            raise Refusal(f"{system.activation.text} has kinks: they are resolved for a square loss on Gaussian labels")
        routes = ["kinked_state", "kinked_averages", whole, "kinked_coarse", "coarse_branch"]
    return {
        "ROUTES": f"Routes({', '.join(routes)})",
        "followed_on": "prox_free_nodes" if smooth else "no_nodes",
        "derived_rates": "second_rates" if derivable(system) else "no_second_rates",
        "linearised": "derived_or_differenced" if derivable(system) else "differenced",
        "controls_of": "controls_at" if derivable(system) else "no_controls",
        **averaging_choices(system, system.location, lengths),
        **({"risk_of_length": "manifold_risk"} if system.label.weighted else {}),
        **({"critical_next": "at_residuals", "AUDITED": "0"} if equations.by_residual(system) else {}),
    }
