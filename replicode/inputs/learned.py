"""What is learned: the model that a loss and labels given as text stand for, and whether the scores matter at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replicode.theory.errors import InputError

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.model import Model

LOSS, LABELS = "quadratic", "gaussian"


def learned(model: Model | None, loss: str, labels: str) -> Model | None:
    """The model of these texts, or the one that is given as an object; None for the default, without SymPy."""
    if model is not None:
        from replicode.theory.model import Model

        if not isinstance(model, Model):
            raise InputError("model", model, "an object of rc.Model")
    if (loss, labels) == (LOSS, LABELS):
        return model
    if model is not None:
        raise InputError("model", "given beside loss or labels", "one of them: a model has its own loss and label")
    from replicode.theory.language.losses import model_of
    from replicode.theory.model import DEFAULT_MODEL

    found = model_of(loss, labels)
    return None if found == DEFAULT_MODEL else found


def named(loss: str, labels: str) -> dict[str, str]:
    """Loss and labels as they were named, where they are not the defaults."""
    return {} if (loss, labels) == (LOSS, LABELS) else {"loss": loss, "labels": labels}


def signal(act: ActivationLike, nu: float | None) -> float:
    """The signal strength, which may be left out where no score is seen."""
    if nu is not None:
        return nu
    from replicode.theory.language.activation import activation
    from replicode.theory.language.nodes import X

    if activation(act).expr.has(X):
        raise InputError("nu", nu, "a number of at least 0: the activation sees scores")
    return 0.0
