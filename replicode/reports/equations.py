"""The equations that a report shows: those of an activation by kind, all from one derivation, and those of Bayes.

Those that no activation enters are the same for all, and a page shows them once.
"""

from __future__ import annotations

from replicode.kinds import ActivationLike, SaddleSystem, Task
from replicode.reports.mathematics import Equation, equation, named_equations
from replicode.theory.lengths import Lengths


def of_activation(act: ActivationLike, task: str | Task, law: Lengths) -> dict[str, list[Equation]]:
    """Saddle point, stability, infinite data, and what is the activation's own."""
    from replicode.theory.derive.population import derive_population
    from replicode.theory.derive.saddle import derive
    from replicode.theory.derive.stability import derive_stability
    from replicode.theory.language.activation import activation

    made = activation(act)
    system, infinite = derive(made, task, law), derive_population(made, task, law)
    closed = {"A": infinite.averages.A, "B": infinite.averages.B}
    return {
        # The free energy and the equations, without the second forms of some of them.
        "saddle": [equation("f", "f", system.free_energy), *named_equations(system.equations())],
        "stability": named_equations(derive_stability(system).equations()),
        "infinite": named_equations({"test_risk": infinite.risk.on_manifold}),
        "own": [
            equation("sigma", r"\sigma(x)", made.expr),
            *_prox(system),
            *named_equations({name: e for name, e in closed.items() if e is not None}),
        ],
    }


def _prox(system: SaddleSystem) -> list[Equation]:
    """The field whose prox is the score x, common parts named."""
    from replicode.derivations.present import W_CHI, inverse_map
    from replicode.derivations.short import abbreviated
    from replicode.theory.typeset.notation import latex

    if not system.model.has_scores:
        return []
    short, (right,) = abbreviated(inverse_map(system))
    return [equation("w_chi", latex(W_CHI), right), *(equation(s.name, latex(s), e) for s, e in short)]


def of_bayes(task: str | Task, law: Lengths) -> dict[str, list[Equation]]:
    """The Bayes-optimal equations, to which no activation matters."""
    from replicode.theory.chain.bayes import bayes_equations
    from replicode.theory.derive.bayes import derive_bayes

    system = derive_bayes(task, law)
    return {"bayes": [equation("Phi", r"\Phi", system.free_entropy), *named_equations(bayes_equations(system))]}
