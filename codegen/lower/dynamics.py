"""The level of training dynamics: the functions derived of a system, and the parts of the run-time that integrate.

Averages: the pulls, spreads and the risk at given overlaps (runtime/dynamics_averages.py, on the nodes of
runtime/dynamics_nodes.py). Update: the rates of the overlaps (runtime/dynamics_flow.py).
"""

from __future__ import annotations

import sympy as sp

from replicode.codegen.contract import declared
from replicode.codegen.ir import (
    Function,
    Kernel,
    LengthIR,
    Level,
    Matrix,
    ModuleIR,
    Output,
    Provenance,
    Returned,
    Unpacked,
    Vector,
)
from replicode.codegen.lower.equations import kinks, label_functions, location_functions, ratio_functions
from replicode.codegen.lower.kernels import kernel_of, pullback_derivatives, stable_form
from replicode.codegen.lower.module import label_constants, places
from replicode.codegen.lower.stamp import constants_of, provenance_of, signature_of, suffix, told_lengths
from replicode.theory.derive.dynamics import (
    DynamicsSystem,
    GivenScores,
    label_weights,
    pulls_of,
    spreads_of,
    students,
)
from replicode.theory.derive.factorised import token_bodies
from replicode.theory.derive.gains import GAINS
from replicode.theory.derive.label import label_kinks, own_noise
from replicode.theory.derive.pieces import loss_kinks
from replicode.theory.language.nodes import X
from replicode.theory.properties.kinks import piecewise

PUBLIC = (
    *("METADATA", "FixedPoint", "Plateau", "Trajectory"),
    *("critical_rate", "field", "fixed_points", "plateau", "solve"),
)
LEVEL = Level(
    parts=(
        *("kernel", "dynamics_kernel", "nodes", "linear", "driver", "refinement", "inputs", "wording"),
        *("dynamics_nodes", "dynamics_averages", "dynamics_gains", "dynamics_located", "dynamics_factors"),
        *("dynamics_flow", "dynamics_solver", "dynamics_points", "options", "script"),
    ),
    public=PUBLIC,
    inner=("SEQUENCES", "PARAMETERS", "ArgumentError", "OutOfReach", "Motion", "Descent", "__main__"),
    legend="""
Legend. Blocks: k (scores) and v (values). Overlaps: m of a block with its teacher, q its squared norm, and the cross
ones k_vstar = k.v*/D, v_kstar = v.k*/D, k_v = k.v/D. Fields of a token: chi* and z*, its score and value under the
teachers, chi and z, those under the students. Token 0 is the hidden one, the others are idle. sigma is the activation,
f = sum_l sigma_l z_l the output, r = y - f the residual, G = -dloss/df. f_l is the slope of f in a student's field at
token l, h_l a field there. pull = E[G sum_l f_l h_l], spread = E[G^2 sum_l f_l f'_l]. eta is a step size, lambda a
weight decay, batch the number of sequences per step; time counts steps/D. mean_ and cov_ are given the scores.
""",
    derived="What is derived of this activation and task: arrays have the tokens along axis 0, the nodes along axis 1.",
)
_OVERLAP_NAMES = ("m_k", "q_k", "m_v", "q_v", "kv_star", "vk_star", "kv")


def lower_dynamics(system: DynamicsSystem) -> ModuleIR:
    """Everything that is emitted for a derived system."""
    law = told_lengths(system.lengths)
    lengths = tuple(_length(system, n, share) for n, share in law.shares)
    signature = signature_of(system, "dynamics", LEVEL.parts)
    return ModuleIR(
        level=LEVEL,
        provenance=_provenance(system, lengths, signature),
        parameters=system.activation.parameters,
        constants=_constants(system, signature),
        lengths=lengths,
        moments=(),
        functions=(*location_functions(system.location), *_averages(system), *_functions(system)),
        choices=_choices(system, lengths),
    )


def _length(system: DynamicsSystem, tokens: int, share: float) -> LengthIR:
    """The activation with its Jacobian at one number of tokens."""
    row_sum = Function(declared("row_sum"), (), (), None)
    of = suffix(told_lengths(system.lengths), tokens)
    return LengthIR(tokens, share, of, 0, (attention_kernel(system, tokens),), None, row_sum)


def attention_kernel(system: DynamicsSystem, tokens: int) -> Kernel:
    """sigma and d sigma_l / d x_j: the second derivative of sum_l sigma_l w_l in x_j and w_l."""
    act = system.activation if system.properties.smooth else piecewise(system.activation)
    stable = stable_form(act, tokens)
    found = pullback_derivatives(stable.form)
    sums = stable.with_shifts(found.value_definitions)
    definitions = (*sums, *found.gradient_definitions, *found.hessian_definitions)
    transposed = found.hessian_xw
    outers = tuple((right, left) for left, right in transposed.outers)
    jacobian = type(transposed)(transposed.diagonal, outers)
    outputs = [Output("sigmas", stable.form.f), Output("jacobian", jacobian)]
    return kernel_of(stable, "attention", declared("attention").doc, (X,), (), definitions, outputs)


def _averages(system: DynamicsSystem) -> tuple[Function, ...]:
    """Averages given the scores: by Isserlis' theorem, or of what any gain needs."""
    model = system.model
    if system.polynomial:
        return (
            Function(declared("label_weights"), (), (), label_weights(model)),
            Function(declared("pull_given"), (), (), system.pull),
            Function(declared("spread_given"), (), (), system.spread),
            Function(declared("risk_given"), (), (), system.risk),
            Function(declared("loss_given"), (), (), system.mean_loss),
            *(_factors(system) if system.factorised else ()),
        )
    lines = label_functions(system.label, model.values.teacher)
    if not system.label.weighted:
        (own, noise) = label_weights(model)
        lines = [Function(declared("label_lines"), (), (), Matrix(((own, sp.S.Zero, noise, sp.S.One),)))]
    terms, (added, joined) = (model.loss, system.gain, model.risk), own_noise(system.label, model)
    return (
        *lines,
        Function(declared("loss_at"), (), (), terms, shaped_like="f"),
        Function(declared("absorbed_noise"), (), (), added),
        Function(declared("joined_noise"), (), (), joined),
        Function(declared("gained_product"), (Unpacked("gains", tuple(GAINS)),), (), system.pull),
    )


def _factors(system: DynamicsSystem) -> tuple[Function, ...]:
    """sigma as a ratio of one token's functions, and the bodies of the sums over tokens."""
    kinked = () if system.properties.smooth else (kinks(system),)
    bodies = Function(declared("token_bodies"), (), (), token_bodies())
    return *ratio_functions(system, system.ratio), bodies, *kinked


def _functions(system: DynamicsSystem) -> tuple[Function, ...]:
    """Laws given the scores, and the rates."""
    overlaps = Unpacked("overlaps", system.overlaps)
    pulls, spreads = (tuple(found(system.model)) for found in (pulls_of, spreads_of))
    named = (overlaps, Unpacked("pulls", pulls), Unpacked("spreads", spreads))
    rates = Vector(tuple(system.rates.values()), tuple(f"d {o}/dt" for o in system.overlaps))
    spherical = Vector(tuple(system.spherical.values()), tuple(f"d {o}/dt" for o in system.overlaps))
    matrix = Matrix.of(system.mobility, tuple(o.name for o in system.overlaps))
    return (
        _given("hidden_given", system.hidden, overlaps),
        _given("idle_given", system.idle, overlaps),
        Function(declared("overlap_rates"), named, (), rates),
        Function(declared("spherical_rates"), named, (), spherical),
        Function(declared("mobility"), (overlaps,), (), matrix),
    )


def _given(name: str, found: GivenScores, overlaps: Unpacked) -> Function:
    returned: Returned = (Vector(tuple(found.law.mean)), Matrix.of(found.law.covariance), Matrix(found.loadings))
    return Function(declared(name), (overlaps,), (), returned)


def _choices(system: DynamicsSystem, lengths: tuple[LengthIR, ...]) -> dict[str, str]:
    """The kernels of every length, and the nodes that the weight of the location needs."""
    kind = system.location.kind
    nodes = f"{kind}_nodes" if kind in ("gaussian", "own") else "coupled_nodes"
    entries = [f"SequenceKernel({n.tokens}, {n.share!r}, attention{n.suffix})" for n in lengths]
    shared = {
        "SEQUENCES": f"({', '.join(entries)},)",
        "score_nodes": nodes,
        "OPTIONS": "(descent_options, parameter_options)",
    }
    if system.factorised:
        where = "unlocated" if kind == "gaussian" else "own_located" if kind == "own" else "coupled_located"
        kinks_at = "no_kinks" if system.properties.smooth else "kink_points"
        return shared | {"averages_of_length": "factorised_averages", "located": where, "kinks_of": kinks_at}
    return shared if system.polynomial else shared | _gain_choices(system)


def _gain_choices(system: DynamicsSystem) -> dict[str, str]:
    """How G is averaged over the output and the label's source, and where a start of least loss is looked for."""
    kind = system.label.kind
    few = system.label.values is not None
    on_lines = kind in ("field", "lines") and system.model.translated
    return {
        "averages_of_length": "gained_averages",
        "branch_gains": "side_gains" if few else "line_gains" if on_lines else "plane_gains",
        "label_sources": "plain_sources" if kind in ("chances", "sampled") else "source_lines",
        "chances_of": "averaged_chances" if kind == "chances" else "sided_chances",
        "labels_at": "sampled_labels" if kind == "sampled" else "lined_labels",
        "best_value": "searched_value",
    }


def _normals(system: DynamicsSystem) -> int:
    """How many normals beside the scores need nodes: one of y - f, or of f beside a threshold, else two."""
    on_lines = system.label.kind in ("field", "lines") and system.model.translated
    return 1 if on_lines or system.label.kind == "threshold" else 2


def _constants(system: DynamicsSystem, signature: str) -> dict[str, object]:
    return {
        **constants_of(system, "dynamics", signature),
        "LOCATION": system.location.kind,
        "INTEGRAND_DEGREE": system.integrand_degree or 0,
        "SMOOTH": bool(system.properties.smooth),
        **_loss_constants(system),
        "HARD_LIMIT": system.location.hard,
        "ORDER_NAMES": places(system.model)["ORDER_NAMES"],
        "OVERLAP_NAMES": _OVERLAP_NAMES,
    }


def _loss_constants(system: DynamicsSystem) -> dict[str, object]:
    """What is known of a loss that is no square, and of a label that is no field."""
    if system.factorised:
        rows = [(t.average, float(t.coefficient), t.label, t.output, t.power, t.body) for t in system.terms]
        return {"FACTORISED": True, "FACTOR_TERMS": tuple((*r[:-1], -1 if r[-1] is None else r[-1]) for r in rows)}
    if system.polynomial:
        return {}
    label, model = system.label, system.model
    return {
        **label_constants(label),
        "POLYNOMIAL": False,
        "TRANSLATED": model.translated,
        "LOSS_KINKS": tuple(float(k) for k in loss_kinks(model)),
        "LABEL_KINKS": tuple(map(float, label_kinks(label, model))),
        "LABEL_PLANE": _normals(system),
    }


def _provenance(system: DynamicsSystem, lengths: tuple[LengthIR, ...], signature: str) -> Provenance:
    names = ", ".join(b.name for b in students(system.model))
    equations = tuple(f"{name} = {expr}" for name, expr in system.equations().items())
    shown = {f"One-pass SGD of {names}, time = steps/D": equations}
    return provenance_of(system, "Training dynamics", signature, lengths, shown)
