"""The radii of tokens as users give them: a file, or an array, of one number above 0 for each token of a pool.

Hands on a `TokenRadii`: the numbers, and a digest of them, by which results and caches tell one pool from another.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from replicode.inputs.spectrum import ours
from replicode.theory.errors import Refusal

if TYPE_CHECKING:
    import numpy as np

    from replicode.theory.model import Model


@dataclass(frozen=True, eq=False)
class TokenRadii:
    """The radii, and how they were asked for."""

    values: np.ndarray[Any, Any]
    text: str

    @cached_property
    def digest(self) -> str:
        """A hash of the numbers."""
        return hashlib.sha256(self.values.tobytes()).hexdigest()

    def question(self) -> dict[str, Any]:
        """What results say they were asked for."""
        return {"radii": self.text, "radii_count": self.values.size, "radii_hash": self.digest}


RadiiLike: TypeAlias = str | Path | TokenRadii | Any


def token_radii(radii: RadiiLike | None) -> TokenRadii | None:
    """The radii that an argument names; None where there are none."""
    if radii is None or isinstance(radii, TokenRadii):
        return radii
    from replicode.codegen.runtime.radial import empirical_radii
    from replicode.codegen.runtime.spectrum_text import named_radii

    text = str(radii) if isinstance(radii, str | Path) else "an array"
    return TokenRadii(ours(lambda: empirical_radii(named_radii(radii))), text)


def radial(model: Model | None, radii: TokenRadii | None) -> Model | None:
    """The model of tokens with radii where there are any."""
    if radii is None:
        return model
    from dataclasses import replace

    from replicode.theory.language.nodes import RADIUS
    from replicode.theory.model import DEFAULT_MODEL

    return replace(model or DEFAULT_MODEL, radius=RADIUS)


def only_replica_symmetric(model: Model | None, what: str) -> None:
    """A Refusal of tokens with radii where their law is not derived."""
    if model is not None and model.radial:
        raise Refusal(f"radii: the law of tokens with radii is derived replica symmetric, not for {what}")
