"""The result of a validation, with the keys that `replicode validate --json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Report:
    """Theory against trained attention, quantity by quantity, with a verdict and the power it had."""

    theory: Mapping[str, float | None]
    trained: Mapping[str, Mapping[str, float | None]]
    dim: int
    dims: tuple[int, ...]
    seeds: int
    failures: int
    verdict: str
    p_value: float | None
    power: float | None
    seeds_needed: int | None
    bayes_risk: float | None
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return asdict(self)
