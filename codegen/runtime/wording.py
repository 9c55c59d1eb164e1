"""How numbers are said in warnings, and which errors need one."""

from __future__ import annotations


def told_apart(value: float, other: float) -> tuple[str, str]:
    """Two numbers in so many digits that they are seen to differ."""
    for digits in range(1, 17):
        texts = f"{value:.{digits}e}", f"{other:.{digits}e}"
        if texts[0] != texts[1]:
            break
    return texts


def too_large(error: float, worst: float) -> list[str]:
    """The warning of an error above the largest that needs none."""
    return [] if error <= worst else ["the error {} is above {}".format(*told_apart(error, worst))]
