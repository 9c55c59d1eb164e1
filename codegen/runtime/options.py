"""What a script takes besides alpha, nu, noise and an error."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def _parameter(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed is NAME=NUMBER") from None


def no_options(parser: argparse.ArgumentParser) -> None:
    """Of a level that has the physics alone."""


def trained_options(parser: argparse.ArgumentParser) -> None:
    """Of a level at which an activation is trained."""
    parser.add_argument("--lambda-k", type=float, default=1.0)
    parser.add_argument("--lambda-v", type=float, default=1.0)
    parser.add_argument("--init", choices=("informed", "random"), default="informed")
    parser.add_argument("--param", type=_parameter, action="append", default=[], metavar="NAME=NUMBER")


add_options: Callable[[argparse.ArgumentParser], None] = trained_options
