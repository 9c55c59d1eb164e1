"""What a script takes besides nu, noise and an error: groups of options, and how those that name files are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from replicode.codegen.runtime.spectrum_text import named_columns, named_radii


def _parameter(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got {text!r}, allowed is NAME=NUMBER") from None


def _starting_point(text: str) -> dict[str, float]:
    return dict(_parameter(part) for part in text.split(","))


def sample_options(parser: argparse.ArgumentParser) -> None:
    """Of levels with finitely many samples."""
    parser.add_argument("--alpha", type=float, required=True, help="samples per dimension")


def training_options(parser: argparse.ArgumentParser) -> None:
    """Of levels at which an activation is trained."""
    parser.add_argument("--lambda-k", type=float, default=1.0)
    parser.add_argument("--lambda-v", type=float, default=1.0)
    parser.add_argument("--init", choices=("informed", "random"), default="informed")


def parameter_options(parser: argparse.ArgumentParser) -> None:
    """Of levels of an activation."""
    parser.add_argument("--param", type=_parameter, action="append", default=[], metavar="NAME=NUMBER")


def spectrum_options(parser: argparse.ArgumentParser) -> None:
    """Of structured tokens."""
    parser.add_argument("--spectrum", help="power:A:D, or a file of eigenvalues; left out: isotropic tokens")
    parser.add_argument("--teacher", help="isotropic, white, top:P, or a file of weights")


def radii_options(parser: argparse.ArgumentParser) -> None:
    """Of tokens with radii."""
    parser.add_argument("--radii", required=True, help="a file of radii of tokens")


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


def with_spectrum(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the columns that spectrum and teacher name."""
    spectrum, teacher = options.pop("spectrum"), options.pop("teacher")
    if spectrum is None and teacher is None:
        return options
    return {**options, "spectrum": named_columns([1.0] if spectrum is None else spectrum, teacher)[0]}


def with_radii(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the radii of a file."""
    return {**options, "radii": named_radii(options["radii"])}


Adder = Callable[[argparse.ArgumentParser], None]
OPTIONS: tuple[Adder, ...] = (sample_options, training_options, parameter_options)
READERS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = ()
