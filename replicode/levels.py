"""The levels: which theories of one model there are, and what derives each of them."""

from __future__ import annotations

from collections.abc import Mapping

from replicode.inputs.arguments import check_parameters
from replicode.inputs.radii import only_replica_symmetric
from replicode.kinds import ActivationLike, Model, System, Task
from replicode.theory.errors import InputError
from replicode.theory.lengths import Lengths

LEVELS = ("rs", "population", "bayes", "stability", "1rsb", "dynamics")


def derived(
    level: str,
    act: ActivationLike | None,
    task: str | Task,
    law: Lengths | None,
    model: Model | None = None,
    given: Mapping[str, float] | None = None,
) -> System:
    """The system of an activation at a level that modules are generated of; no activation matters to bayes.

    That of stability is the replica-symmetric one: its module has the matrix and the replicon at its solutions.
    """
    if level not in ("rs", "stability"):
        only_replica_symmetric(model, f"the level {level}")
    if level == "bayes":
        check_parameters((), given or {})
        from replicode.theory.derive.bayes import derive_bayes

        return derive_bayes(task, law, model)
    from replicode.theory.language.activation import activation

    of = activation(named(act), given or {})
    if level == "dynamics":
        from replicode.theory.derive.dynamics import derive_dynamics

        return derive_dynamics(of, task, law, model)
    if level == "population":
        from replicode.theory.derive.population import derive_population

        return derive_population(of, task, law, model)
    from replicode.theory.derive.saddle import derive

    system = derive(of, task, law, model)
    if level == "1rsb":
        from replicode.theory.derive.rsb import derive_step

        return derive_step(system)
    return system


def named(act: ActivationLike | None) -> ActivationLike:
    """An activation, which only the Bayes-optimal level does without."""
    if act is None:
        raise InputError("activation", None, "a registered name or an expression, unless the level is bayes")
    return act
