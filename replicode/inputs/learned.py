"""What is learned, and from which tokens: as users name it (`ModelTexts`), and once it is read (`Learning`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from replicode.inputs.content import Content, model_content
from replicode.inputs.radii import RadiiLike, TokenRadii, radial, token_radii
from replicode.inputs.spectrum import SpectrumLike, TokenSpectrum, structured, token_spectrum
from replicode.theory.errors import InputError

if TYPE_CHECKING:
    from replicode.theory.language.activation import ActivationLike
    from replicode.theory.model import Model

LOSS, LABELS = "quadratic", "gaussian"


@dataclass(frozen=True)
class Learning:
    """The model, None for the default, the data that come with it, and loss and labels as they were named."""

    model: Model | None = None
    spectrum: TokenSpectrum | None = None
    radii: TokenRadii | None = None
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        """What a module's functions are given besides numbers."""
        spectrum = {} if self.spectrum is None else {"spectrum": self.spectrum.argument}
        return spectrum | ({} if self.radii is None else {"radii": self.radii.values})

    @property
    def content(self) -> Content:
        """What the keys of kept work say of it."""
        return *model_content(self.model), *(d.digest for d in (self.spectrum, self.radii) if d is not None)

    def question(self) -> dict[str, Any]:
        """What results say they were asked for."""
        data = [d.question() for d in (self.spectrum, self.radii) if d is not None]
        return {k: v for part in (self.named, *data) for k, v in part.items()}


DEFAULT = Learning()


@dataclass(frozen=True)
class ModelTexts:
    """A model as an object, or loss and labels by name, and the tokens' spectrum and radii."""

    model: Model | None = None
    loss: str = LOSS
    labels: str = LABELS
    spectrum: SpectrumLike | None = None
    teacher: str | None = None
    radii: RadiiLike | None = None

    def read(self) -> Learning:
        """What these stand for, or an InputError."""
        spectrum, radii = token_spectrum(self.spectrum, self.teacher), token_radii(self.radii)
        model = radial(structured(learned(self.model, self.loss, self.labels), spectrum), radii)
        return Learning(model, spectrum, radii, named(self.loss, self.labels))


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
