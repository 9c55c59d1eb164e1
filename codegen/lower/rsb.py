"""One step of replica symmetry breaking: its derived functions, and the parts of the run-time that solve for the rest.

Averages: of F = -(1/y) log E exp(-y M), of its gradient, and tilted by exp(-y M), on tensor grids
(runtime/rsb_channel.py). Update: m, q0, q1, V from the conjugates (runtime/rsb_evolution.py), and y from df/dy = 0
(runtime/rsb_balance.py).
"""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from replicode.codegen.contract import declared
from replicode.codegen.ir import Function, Level, Matrix, ModuleIR, Provenance, Unpacked, Vector
from replicode.codegen.lower.equations import explicit, names_of
from replicode.codegen.lower.module import lower_module
from replicode.codegen.lower.stamp import INNER, OVER_SAMPLES, signature_of
from replicode.theory.derive.rsb import TILTED_ENVELOPE, StepBlock, StepSystem, step_envelope_of, step_rate

PUBLIC = ("METADATA", "Solution", "free_energy", "population_risk", "residual", "solve", "states")
LEVEL = Level(
    parts=(
        *("kernel", "rsb_kernel", "lengths", "nodes", "linear", "lowrank", "places", "inputs", "wording", "location"),
        "refinement",
        *("label", "loss", "fields", "prox", "channel", "population", "tokenwise", "kinks", "rsb_grid", "rsb_table"),
        *("rsb_averages", "rsb_channel", "rsb_nested", "driver", "rsb_evolution", "rsb_balance", "rsb_solver"),
        *("rsb_states", "options", "script"),
    ),
    public=PUBLIC,
    inner=INNER,
    legend="""
Legend. Blocks: k (scores) and v (values). Order parameters of a block: m, the overlap with its teacher, q0, the overlap
of two states, q1, its squared norm, V, its response; mh, qh0, qh1 and Vh are their conjugates. y_P is the Parisi
parameter at zero temperature. Fields of a sequence: w_chi and w_z of its tokens, without the noise of variance q1 - q0
that tells states apart, and the label y. Token 0, `eps`, is the hidden one; `l` stands for any of the others, the idle
ones. M is the Moreau envelope, G minus its slope, F = -(1/y_P) log E exp(-y_P M) with E over that noise; <.> is the
average over it tilted by exp(-y_P M). EF is the average of F over the fields, EM_tilted that of <M>.
""",
    derived=OVER_SAMPLES,
)
_SEAMS = ("averages_of_length", "rough_moments", "risk_of_length", "location_at", "teacher_weight")
_ENVELOPE = sp.Symbol("envelope", real=True)
_TILTED = sp.Symbol("tilted", real=True)


def lower_step(system: StepSystem) -> ModuleIR:
    """Everything that is emitted for a derived system: kernels and laws as replica symmetry has them, and its own."""
    base = lower_module(system.system)
    signature = signature_of(system.system, "1rsb", LEVEL.parts)
    names = {
        "STEP_NAMES": tuple(s.name for s in system.order_parameters),
        "STEP_CONJUGATES": tuple(s.name for s in system.conjugates),
    }
    metadata = {**base.constants["METADATA"], "level": "1rsb", "signature": signature}
    return replace(
        base,
        level=LEVEL,
        provenance=_provenance(system, base.provenance, signature),
        constants={**base.constants, **names, "METADATA": metadata},
        functions=(*base.functions, *_functions(system)),
        choices={name: base.choices[name] for name in _SEAMS if name in base.choices},
    )


def _functions(system: StepSystem) -> tuple[Function, ...]:
    """The saddle-point maps, f with its gradient, and stability."""
    order = Unpacked("order", system.order_parameters)
    conjugates = Unpacked("conjugates", system.conjugates)
    rates = names_of(system.model).rates
    squares = Unpacked("squares", tuple(b.square for b in _by_role(system)))
    named = {step_envelope_of(system.model): _ENVELOPE, TILTED_ENVELOPE: _TILTED}
    slopes = {
        s: system.gradient[s].xreplace({step_rate(s): system.rates[s]} if s in system.rates else {})
        for s in (*system.order_parameters, *system.conjugates)
    }
    update, found = system.prior_update, system.conjugate_update
    return (
        explicit("step_conjugates", (rates, squares), {s: found[s] for s in system.conjugates}),
        explicit("step_update", (conjugates,), {s: update[s] for s in system.order_parameters}),
        Function(declared("step_free_energy"), (order, conjugates), (), system.free_energy.xreplace(named)),
        Function(
            declared("step_gradient"),
            (order, conjugates, rates, squares),
            (),
            Vector(tuple(slopes.values()), tuple(f"df/d{s.name}" for s in slopes)),
        ),
        Function(declared("step_slope"), (order, conjugates), (), system.slope.xreplace(named)),
        _stability(system, order),
    )


def _by_role(system: StepSystem) -> tuple[StepBlock, ...]:
    """The blocks, scores before values."""
    return tuple(b for role in ("score", "value") for b in system.blocks if b.block.role == role)


def _stability(system: StepSystem, order: Unpacked) -> Function:
    """Both matrices, scores before values."""
    places = [system.blocks.index(b) for b in _by_role(system)]
    squares, matrices = [], []
    for kind, matrix in system.stability.items():
        by_role = matrix.extract(places, places)
        symbols = [next(iter(s for s in e.free_symbols if s.name.startswith("R_"))) for e in by_role]
        squares.append(Unpacked(kind, tuple(dict.fromkeys(symbols))))
        matrices.append(Matrix.of(by_role))
    return Function(declared("step_stability"), (order, *squares), (), tuple(matrices))


def _provenance(system: StepSystem, base: Provenance, signature: str) -> Provenance:
    return replace(
        base,
        title=f"One step of replica symmetry breaking of {system.system.activation.name} attention",
        signature=signature,
        equations={
            "Free energy, with EF the average of F": (str(system.free_energy),),
            "Saddle-point equations": tuple(f"{name} = {e}" for name, e in system.equations().items()),
        },
    )
