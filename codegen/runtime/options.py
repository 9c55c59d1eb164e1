"""What a script takes besides nu, noise and an error."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def _parameter(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed is NAME=NUMBER") from None


def _starting_point(text: str) -> dict[str, float]:
    return dict(_parameter(part) for part in text.split(","))


def no_options(parser: argparse.ArgumentParser) -> None:
    """Of a level that has the physics alone."""
    parser.add_argument("--alpha", type=float, required=True, help="samples per dimension")


def population_options(parser: argparse.ArgumentParser) -> None:
    """Of infinite data."""
    parser.add_argument("--param", type=_parameter, action="append", default=[], metavar="NAME=NUMBER")


def trained_options(parser: argparse.ArgumentParser) -> None:
    """Of a level at which an activation is trained."""
    no_options(parser)
    parser.add_argument("--lambda-k", type=float, default=1.0)
    parser.add_argument("--lambda-v", type=float, default=1.0)
    parser.add_argument("--init", choices=("informed", "random"), default="informed")
    parser.add_argument("--param", type=_parameter, action="append", default=[], metavar="NAME=NUMBER")


def descent_options(parser: argparse.ArgumentParser) -> None:
    """Of the training dynamics."""
    parser.add_argument("--rate", type=float, required=True, help="step size")
    parser.add_argument("--time", type=float, required=True, help="steps/D to go")
    parser.add_argument("--start", type=_starting_point, default={}, metavar="m_k=0.1,q_k=1,...")
    parser.add_argument("--rate-v", type=float, default=None, help="step size of v; 0 keeps it fixed")
    parser.add_argument("--lambda-k", type=float, default=0.0)
    parser.add_argument("--lambda-v", type=float, default=0.0)
    parser.add_argument("--batch", type=float, default=1.0, help="sequences per step")
    parser.add_argument("--flow", action="store_true", help="the limit of small steps")
    parser.add_argument("--spherical", action="store_true", help="both directions keep their norms")
    parser.add_argument("--points", type=int, default=101)
    parser.add_argument("--param", type=_parameter, action="append", default=[], metavar="NAME=NUMBER")


add_options: Callable[[argparse.ArgumentParser], None] = trained_options
