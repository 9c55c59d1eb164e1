"""`derive`: the saddle-point system of an activation, and the derivation of every level as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from replicode import __version__
from replicode.cache import cached
from replicode.inputs.arguments import check_parameters, one_of
from replicode.inputs.asked import asked
from replicode.inputs.content import activation_content, model_content, task_content
from replicode.inputs.learned import LABELS, LOSS, ModelTexts, learned
from replicode.inputs.spectrum import SpectrumLike
from replicode.kinds import ActivationLike, Model, SaddleSystem, System, Task
from replicode.levels import LEVELS, derived, named
from replicode.theory.budget import budget
from replicode.theory.errors import Refusal
from replicode.theory.lengths import Lengths, Tokens, lengths
from replicode.theory.limits import given_parameters

if TYPE_CHECKING:
    from replicode.derivations.present import Derivation
    from replicode.theory.derive.stability import StabilitySystem


@overload
def derive(
    act: ActivationLike,
    task: str | Task = "spiked",
    tokens: Tokens | None = None,
    model: Model | None = None,
    parameters: Mapping[str, float] | None = None,
    *,
    level: Literal["rs"] = "rs",
    loss: str = LOSS,
    labels: str = LABELS,
    **more: float,
) -> SaddleSystem: ...


@overload
def derive(
    act: ActivationLike | None = None,
    task: str | Task = "spiked",
    tokens: Tokens | None = None,
    model: Model | None = None,
    parameters: Mapping[str, float] | None = None,
    *,
    level: str,
    loss: str = LOSS,
    labels: str = LABELS,
    **more: float,
) -> System: ...


def derive(
    act: ActivationLike | None = None,
    task: str | Task = "spiked",
    tokens: Tokens | None = None,
    model: Model | None = None,
    parameters: Mapping[str, float] | None = None,
    *,
    level: str = "rs",
    loss: str = LOSS,
    labels: str = LABELS,
    **more: float,
) -> System:
    """The saddle-point system of an activation; `tokens=None` keeps L symbolic, '1:0.2,2:0.8' is a distribution.

    Level bayes is the Bayes-optimal system of the task, to which no activation matters; 1rsb is one step of replica
    symmetry breaking, population the risk with infinite data, dynamics the equations of one-pass SGD. Level stability
    is rs, which holds it.
    """
    law, model = None if tokens is None else lengths(tokens), learned(model, loss, labels)
    given = given_parameters(parameters, more)
    return derived(one_of("level", level, LEVELS), act, task, law, model, given)


def derivation_of(
    act: ActivationLike | None,
    task: str | Task,
    tokens: Tokens | None,
    level: str = "rs",
    parameters: Mapping[str, float] | None = None,
    loss: str = LOSS,
    labels: str = LABELS,
    spectrum: SpectrumLike | None = None,
    teacher: str | None = None,
    steps: bool = False,
) -> dict[str, Any]:
    """The derivation of an activation in every format, from the cache when it is there.

    `steps` adds the numbered chain to the pages; the JSON always has it. With a spectrum it is that of structured
    tokens, the same for all spectra: these are data of the equations.
    """
    one_of("level", level, LEVELS)
    learning = ModelTexts(None, loss, labels, spectrum, teacher).read()
    law = None if tokens is None else lengths(tokens)
    given = given_parameters(parameters, {})
    of = None if level == "bayes" else named(act)
    if of is None:
        check_parameters((), given)

    def build() -> dict[str, Any]:
        from replicode.derivations.present import as_json, derivation

        found = derivation(_system(level, of, task, law, learning.model, given))
        made_for = f"derivation of {found.subject}, task {found.task_name}, level {level}"
        return {"made_for": made_for, "json": as_json(found), **_pages(found, steps)}

    with budget(f"deriving level {level}"):
        content = () if of is None else (activation_content(of), sorted(given.items()))
        key = *content, task_content(task), repr(law), level, steps, *model_content(learning.model)
        found = cached("derive", key, build)
        question = asked(of, task, law, given, learning.model, level=level, **learning.question())
        stamp = {"asked": question, "version": __version__}
    return found | {"json": found["json"] | stamp}


def _pages(found: Derivation, steps: bool) -> dict[str, str]:
    """The derivation in every format, without the chain or with it."""
    from replicode.derivations.present import as_latex, as_latex_fragment, as_markdown, as_text

    pages = {"text": as_text, "markdown": as_markdown, "latex": as_latex, "fragment": as_latex_fragment}
    return {name: write(found, steps) for name, write in pages.items()}


def _system(
    level: str,
    of: ActivationLike | None,
    task: str | Task,
    law: Lengths | None,
    model: Model | None,
    given: Mapping[str, float],
) -> System | StabilitySystem:
    """The system whose derivation is shown."""
    if level == "population" and model is not None:
        raise Refusal("level population: it is the squared error of Gaussian labels, whatever is trained on")
    system = derived(level, of, task, law, model, given)
    if level != "stability":
        return system
    from replicode.theory.derive.stability import derive_stability

    return derive_stability(cast(SaddleSystem, system))
