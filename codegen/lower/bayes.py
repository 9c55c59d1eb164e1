"""The Bayes-optimal level: the functions derived of a task, and the parts of the run-time that solve for the rest.

Averages: of |grad log Z|^2 in both blocks, log Z, and the posterior of the location without a label, by one of two
channels (runtime/bayes_own.py, runtime/bayes_coupled.py). Update: q from qh = alpha times the first two
(runtime/bayes_evolution.py).
"""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from replicode.codegen.contract import declared
from replicode.codegen.ir import Function, Level, Matrix, ModuleIR, Provenance, Returned, Unpacked, Vector
from replicode.codegen.lower.stamp import VERSIONS, hashed, structure_of, told_lengths
from replicode.theory.chain.bayes import bayes_equations
from replicode.theory.derive.bayes import BayesSystem, entropy_of
from replicode.theory.derive.bayes_prior import coordinate_terms, prior_function
from replicode.theory.gaussian.sequence import SignedFunction
from replicode.theory.lengths import Lengths
from replicode.theory.model import DEFAULT_MODEL, Model

PUBLIC = ("METADATA", "Branch", "Solution", "branches", "free_entropy", "solve")
LEVEL = Level(
    parts=(
        *("kernel", "bayes_kernel", "nodes", "inputs", "wording", "prior", "spectrum", "bayes_rates", "bayes_prior"),
        *("driver", "refinement", "bayes_label", "bayes_weight", "bayes_own", "bayes_keys", "bayes_location"),
        *("bayes_sampled", "bayes_coupled", "bayes_evolution", "bayes_solver", "spectrum_text", "options", "script"),
    ),
    public=PUBLIC,
    inner=("LENGTHS", "BayesOverlaps", "channel_at", "spectrum_of", "ArgumentError", "OutOfReach", "__main__"),
    legend="""
Legend. Blocks: k (scores) and v (values). q of a block is the overlap of the posterior mean with its teacher, V = 1 - q
what is not known of it, qh the conjugate of q. Fields of a token: w_chi and w_z, what the posterior means say of its
score chi* and of its value; d = y - w_z is the gap between the label y and that value, V_y the label's variance given
w_z. Z = (1/L) sum_e gbar_e(w_chi) N(y; w_z_e, V_y) is the evidence of a sequence, e running over its L tokens, of which
one is the hidden one, eps; the others are idle. gbar_e is the weight g of the task averaged over chi* given w_chi. P is
the posterior of the location without a label, A = E P_eps. E is the average over sequences, ElogZ that of log Z.
""",
    derived="What is derived of this task.",
)
_LOG_Z = sp.Symbol("log_Z", real=True)
_PRIOR_SEAMS = ("overlaps", "entropy", "informed", "contraction")


def lower_bayes(system: BayesSystem, coupled: bool | None = None) -> ModuleIR:
    """Everything that is emitted for a derived system; nodes over all scores are taken where the weight needs them."""
    law = told_lengths(system.lengths)
    over_all = system.location.coupled if coupled is None else coupled
    derived = (*_scalar_functions(system), *(_coupled_functions(system) if over_all else _own_functions(system)))
    functions = tuple(replace(f, returned=_declared_names(f.returned, system.model)) for f in derived)
    signature = _signature(system, over_all)
    return ModuleIR(
        level=LEVEL,
        provenance=_provenance(system, functions, signature),
        parameters=(),
        constants=_constants(system, law, signature),
        lengths=(),
        moments=(),
        functions=functions,
        choices=_choices(system, over_all),
    )


def _function(name: str, returned: Returned, shaped_like: str | None = None) -> Function:
    return Function(declared(name), (), (), returned, shaped_like)


def _declared_names(returned: Returned, model: Model) -> Returned:
    """The same with the symbols of the blocks named as the seam names them, whatever the model calls its blocks."""
    if isinstance(returned, tuple):
        return tuple(_declared_names(r, model) for r in returned)
    if isinstance(returned, Vector):
        return Vector(tuple(_declared_names(r, model) for r in returned.entries))
    if returned is None or isinstance(returned, Matrix):
        return returned
    known = DEFAULT_MODEL
    return returned.xreplace(model.scores.renaming(known.scores) | model.values.renaming(known.values))


def _scalar_functions(system: BayesSystem) -> tuple[Function, ...]:
    """The label's law, the prior, the free entropy and the risk."""
    label = system.label
    return (
        _function("label_log_density", label.log_density, "d"),
        _function("label_slope", label.slope, "d"),
        _function("label_variance", system.in_unknowns(label.variance)),
        _function("label_total", label.total),
        *(_spectral_prior(system) if system.model.structured else _closed_prior(system)),
        _function("risk_of_location", system.risk),
        _function("noise_risk", system.model.noise_risk()),
        _revealed(system),
        _function("revealed_contraction", system.revealed.contraction),
    )


def _closed_prior(system: BayesSystem) -> tuple[Function, ...]:
    """The update and the free entropy."""
    blocks = system.model.scores, system.model.values
    both = tuple(e for b in blocks for e in (system.update[b.q], system.unknown[b.V]))
    return (
        _function("bayes_update", both),
        _function("free_entropy_value", _entropy(system)),
    )


def _spectral_prior(system: BayesSystem) -> tuple[Function, ...]:
    """What a coordinate adds to the means, and the free entropy in psi."""
    blocks = system.model.scores, system.model.values
    psi = {prior_function(b): sp.Symbol(f"psi_{b.role}", real=True) for b in blocks}
    value = _entropy(system).xreplace(psi)
    names = (Unpacked("priors", tuple(psi.values())),)
    return (
        _function("coordinate_prior_terms", coordinate_terms(system.model)),
        Function(declared("free_entropy_value", "priors"), names, (), value),
    )


def _revealed(system: BayesSystem) -> Function:
    """The fixed point with every location revealed, or the conjugate there."""
    found = system.revealed
    if found.V_v is None:
        return _function("revealed_strength", system.in_unknowns(found.strength))
    return _function("revealed_V_v", found.V_v)


def _entropy(system: BayesSystem) -> sp.Expr:
    return system.in_unknowns(system.free_entropy.xreplace({entropy_of(system.model): _LOG_Z}))


def _own_functions(system: BayesSystem) -> tuple[Function, ...]:
    """The weight of the hidden token's own score: its average where that is closed, else its logarithm."""
    if _closed(system):
        return (
            _function("hidden_score", system.task.hidden_score()),
            _function("prior_log_average", system.prior, "w_chi"),
            _function("prior_slope", system.prior_slope, "w_chi"),
        )
    own = SignedFunction.of(system.location.own)
    return _function("own_log_weight", own.log, "x"), _function("own_kinks", Vector(own.kinks))


def _closed(system: BayesSystem) -> bool:
    return system.task.gaussian and system.prior is not None


def _coupled_functions(system: BayesSystem) -> tuple[Function, ...]:
    """The factors of a weight of all scores, and the law of the winner where the weight has a limit."""
    weight = system.location
    offset, body = (weight.power.offset, weight.power.body) if weight.power else (sp.S.Zero, sp.S.One)
    factors = {"marked_log": weight.own, "every_log": weight.every, "body_log": body}
    logs = {name: SignedFunction.of(factor) for name, factor in factors.items()}
    kinks = Vector(tuple(kink for found in logs.values() for kink in found.kinks))
    laws: dict[str, sp.Expr] = {}
    if system.hard is not None:
        slopes = dict(zip(("winner_below_slope", "winner_density_slope"), system.hard.slopes, strict=True))
        laws = {"winner_below": system.hard.below, "winner_density": system.hard.density, **slopes}
    q, V = system.model.scores.q, system.model.scores.V
    return (
        *(_function(name, found.log, "x") for name, found in logs.items()),
        _function("token_kinks", kinks),
        _function("weight_coefficient", weight.coefficient),
        _function("weight_offset", offset),
        *(_function(name, law.subs(q, 1 - V)) for name, law in laws.items()),
    )


def _choices(system: BayesSystem, over_all: bool) -> dict[str, str]:
    """The channel, within it the weight or the tables, and the prior."""
    prior = {"OPTIONS": "(sample_options,)"}
    if system.model.structured:
        prior = {"OPTIONS": "(sample_options, spectrum_options)", "READERS": "(with_spectrum,)"}
        prior |= {"spectrum_of": "spectral_spectrum_of"}
        prior |= {f"{name}_at": f"spectral_{name}" for name in _PRIOR_SEAMS}
    if over_all:
        found = {"channel_at": "CoupledChannel", "one_token_tables": "soft_tables", **prior}
        limited = {"one_token_tables": "limited_tables", "node_weights": "limited_weights"}
        return found if system.hard is None else found | limited
    weight = "ClosedWeight" if _closed(system) else "PanelWeight"
    return {"channel_at": "OwnChannel", "weight_at": weight, **prior}


def _constants(system: BayesSystem, lengths: Lengths, signature: str) -> dict[str, object]:
    weight = system.location
    metadata = {
        "level": "bayes",
        "task": system.task.text,
        "tokens": lengths.fixed or str(lengths),
        "signature": signature,
        "versions": VERSIONS,
        "options": {"label": str(system.model.label), **structure_of(system.model)},
    }
    return {
        "METADATA": metadata,
        "HARD_LIMIT": 0 if system.hard is None else system.hard.sign,
        "LENGTHS": lengths.shares,
        "DIFFERENCES": weight.shift_invariant,
        "POWER": 0.0 if weight.power is None else float(weight.power.power),
    }


def _signature(system: BayesSystem, over_all: bool) -> str:
    """Hash of the canonical log-weight, the lengths, the model, versions and run-time source."""
    weight = sp.srepr(system.task.log_weight)
    return hashed(f"bayes {over_all}", LEVEL.parts, weight, repr(system.lengths), system.model.key)


def _provenance(system: BayesSystem, functions: tuple[Function, ...], signature: str) -> Provenance:
    counted = {f.name: f.returned for f in functions if isinstance(f.returned, sp.Expr)}
    return Provenance(
        title="Bayes-optimal theory of single-location regression",
        about={"task": f"log-weight {system.task.text}", "tokens": str(system.lengths)},
        signature=signature,
        operations={name: int(sp.count_ops(expr)) for name, expr in counted.items()},
        equations={
            "Free entropy": (str(system.free_entropy),),
            "Fixed point, with dlogZ_b the gradient of log Z in the fields of block b": tuple(
                f"{name} = {expr}" for name, expr in bayes_equations(system).items()
            ),
        },
    )
