"""What a script takes besides nu, noise and an error."""

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


def structured_options(parser: argparse.ArgumentParser) -> None:
    """Of a level with structured tokens and the physics alone."""
    no_options(parser)
    _spectrum_options(parser)


def structured_trained_options(parser: argparse.ArgumentParser) -> None:
    """Of a level at which an activation is trained on structured tokens."""
    trained_options(parser)
    _spectrum_options(parser)


def radial_options(parser: argparse.ArgumentParser) -> None:
    """The same of tokens with radii."""
    structured_trained_options(parser)
    _radii_option(parser)


def radii_options(parser: argparse.ArgumentParser) -> None:
    """Of isotropic tokens with radii."""
    trained_options(parser)
    _radii_option(parser)


def _radii_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--radii", required=True, help="a file of radii of tokens")


def _spectrum_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spectrum", help="power:A:D, or a file of eigenvalues; left out: isotropic tokens")
    parser.add_argument("--teacher", help="isotropic, white, top:P, or a file of weights")


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


def as_given(options: dict[str, Any]) -> dict[str, Any]:
    """The options as they are."""
    return options


def with_spectrum(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the columns that spectrum and teacher name."""
    spectrum, teacher = options.pop("spectrum"), options.pop("teacher")
    if spectrum is None and teacher is None:
        return options
    return {**options, "spectrum": named_columns([1.0] if spectrum is None else spectrum, teacher)[0]}


def with_radii_alone(options: dict[str, Any]) -> dict[str, Any]:
    """The options with the radii of a file."""
    return {**options, "radii": named_radii(options["radii"])}


def with_radii(options: dict[str, Any]) -> dict[str, Any]:
    """The same with the columns that spectrum and teacher name."""
    return with_spectrum(with_radii_alone(options))


add_options: Callable[[argparse.ArgumentParser], None] = trained_options
read_options: Callable[[dict[str, Any]], dict[str, Any]] = as_given
