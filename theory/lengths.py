"""The number of tokens: one number, or a distribution P(L) written as 1:0.2,2:0.3,3:0.5."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from replicode.theory.errors import InputError
from replicode.theory.limits import MAX_TOKENS, real_number, whole_number

_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Lengths:
    """Numbers of tokens with their probabilities, which sum to one."""

    tokens: tuple[int, ...]
    weights: tuple[float, ...]

    def __str__(self) -> str:
        if self.fixed is not None:
            return str(self.fixed)
        return ",".join(f"{n}:{p!r}" for n, p in self.shares)

    @property
    def shares(self) -> tuple[tuple[int, float], ...]:
        """Every number of tokens with its probability."""
        return tuple(zip(self.tokens, self.weights, strict=True))

    @property
    def fixed(self) -> int | None:
        """The number of tokens where it does not vary."""
        return self.tokens[0] if len(self.tokens) == 1 else None


Tokens = int | str | Mapping[int, float] | Lengths


def lengths(spec: Tokens) -> Lengths:
    """One length or a distribution, as text or as a mapping {1: 0.2, 2: 0.8}; weights of zero are left out."""
    if isinstance(spec, Lengths):
        return spec
    if isinstance(spec, Mapping):
        return _distribution(spec, list(spec.items()))
    if isinstance(spec, str) and ":" in spec:
        return _distribution(spec, [_pair(spec, part) for part in spec.split(",")])
    if isinstance(spec, str):
        try:
            spec = int(spec)
        except ValueError:
            raise InputError("tokens", spec, _ALLOWED) from None
    return Lengths((whole_number("tokens", spec, 1, MAX_TOKENS),), (1.0,))


_ALLOWED = f"a whole number from 1 to {MAX_TOKENS} or a distribution such as 1:0.2,2:0.3,3:0.5"


def _pair(text: str, part: str) -> tuple[int, float]:
    number, _, weight = part.partition(":")
    try:
        return int(number), float(weight)
    except ValueError:
        raise InputError("tokens", text, _ALLOWED) from None


def _distribution(spec: object, pairs: Sequence[tuple[int, float]]) -> Lengths:
    found: dict[int, float] = {}
    for number, weight in pairs:
        tokens, probability = whole_number("tokens", number, 1, MAX_TOKENS), real_number("tokens", weight, _ALLOWED)
        if tokens in found or not (math.isfinite(probability) and probability >= 0.0):
            raise InputError("tokens", spec, f"{_ALLOWED}: each length once, weights of at least 0")
        found[tokens] = probability
    if abs(sum(found.values()) - 1.0) > _SUM_TOLERANCE:
        raise InputError("tokens", spec, f"{_ALLOWED}: weights that sum to 1, not {sum(found.values()):g}")
    kept = {n: p for n, p in sorted(found.items()) if p > 0.0}
    return Lengths(tuple(kept), tuple(kept.values()))
