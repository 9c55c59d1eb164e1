"""A number written to its error, as physicists do: 0.539931847(2) is 0.539931847 with an error of at most 2e-9."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

_ROUGH = 3
_EXACT = 12
_LONGEST = 17


def with_error(value: float, error: float | None) -> str:
    """The value to the last digit that its error leaves, and the error in units of that digit, rounded up."""
    if error is None or not math.isfinite(value):
        return f"{value:.{_ROUGH}g}"
    if not math.isfinite(error):
        return f"{value:.{_ROUGH}g} (error not known)"
    if error == 0.0:
        return f"{value:.{_EXACT}g}"
    bound = Decimal(repr(error)).normalize(Context(prec=1, rounding=ROUND_CEILING))
    place = int(bound.as_tuple().exponent)
    if place >= 0 or -place > _LONGEST:
        return f"{value:.{_ROUGH}g} +- {float(bound):.0g}" if place >= 0 else f"{value:.{_EXACT}g}"
    return f"{value:.{-place}f}({bound.as_tuple().digits[0]})"


def written(result: Mapping[str, Any], errors: Mapping[str, float | None]) -> dict[str, Any]:
    """The numbers of a result as text: with the errors they have, and roughly where they have none."""

    def text(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {n: text(n, v) for n, v in value.items()}
        return with_error(value, errors.get(name)) if isinstance(value, float) else value

    return {name: text(name, value) for name, value in result.items()}
