"""The options that several verbs take, and how their text is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from replicode.theory.errors import InputError

Option = Callable[[Any], Any]


def together(*options: Option) -> Option:
    """Several options as one."""

    def apply(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


def number(name: str, text: str, allowed: str = "a number") -> float:
    """The number that a text says, or an InputError."""
    try:
        return float(text)
    except ValueError:
        raise InputError(name, text, allowed) from None


def numbers(name: str, text: str) -> list[float]:
    """The numbers of a list separated by commas."""
    return [number(name, part) for part in text.split(",")]


def ends(name: str, text: str) -> tuple[float, float]:
    """The two ends of a range LO:HI."""
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        raise InputError(name, text, "a number, or a range LO:HI of two numbers") from None
    return low, high


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that have a value; of the others the Python verb knows the default."""
    return {name: value for name, value in arguments.items() if value is not None}


def _whole_number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(name, text, "a whole number") from None


def named(option: str, text: str, allowed: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    name, sign, value = text.partition("=")
    if not (name.strip() and sign and value.strip()):
        raise InputError(option, text, allowed)
    return name.strip(), value.strip()


T = TypeVar("T")


def _parameters(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, float]:
    return _once(texts, _parameter)


def _parameter(text: str) -> tuple[str, float]:
    allowed = "NAME=NUMBER, as in c=0.5"
    name, value = named("param", text, allowed)
    try:
        return name, float(value)
    except ValueError:
        raise InputError("param", text, allowed) from None


def _param_ranges(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    return _once(texts, lambda text: named("param", text, "NAME=NUMBER or NAME=LO:HI"))


def _once(texts: tuple[str, ...], read: Callable[[str], tuple[str, T]]) -> dict[str, T]:
    """The values by name; a second one of the same name is refused."""
    values: dict[str, T] = {}
    written: dict[str, str] = {}
    for text in texts:
        name, value = read(text)
        if name in values:
            raise InputError("param", text, f"one value of {name}: {written[name]} was given already")
        values[name], written[name] = value, text.partition("=")[2].strip()
    return values


def _converted(read: Callable[[str, str], Any], flag: str, name: str, metavar: str, more: dict[str, Any]) -> Option:
    def convert(_: click.Context, __: click.Parameter, text: str | None) -> Any:
        return None if text is None else read(name, text)

    return click.option(flag, name, callback=convert, metavar=metavar, **more)


def real(flag: str, name: str, **more: Any) -> Option:
    """An option whose value is a number."""
    return _converted(number, flag, name, "NUMBER", more)


def whole(flag: str, name: str, **more: Any) -> Option:
    """An option whose value is a whole number."""
    return _converted(_whole_number, flag, name, "INTEGER", more)


activation = click.argument("activation")
any_activation = click.argument("activation", required=False)
task = click.option("--task", default="spiked", show_default=True, help="spiked, max, or a log-weight in x and nu.")
tokens = click.option("--tokens", required=True, help="Number of tokens, or a distribution such as 1:0.2,2:0.3,3:0.5.")
any_tokens = click.option("--tokens", default=None, help="Number of tokens, or a distribution; symbolic when left out.")
question = together(activation, task, tokens)
param = click.option("--param", "parameters", multiple=True, callback=_parameters, metavar="NAME=NUMBER")
nu = real("--nu", "nu", required=True, help="Signal strength; inf where the limit exists.")
any_nu = real("--nu", "nu", default=None, help="Signal strength; inf where the limit exists; needed for any scores.")
noise = real("--noise", "noise", default="0", show_default=True, help="Label noise, a standard deviation.")
points = together(
    real("--alpha", "alpha", required=True, help="Samples per dimension."),
    any_nu,
    noise,
    real("--lambda-k", "lambda_k", default="1", show_default=True),
    real("--lambda-v", "lambda_v", default="1", show_default=True),
)
ranged = together(
    click.option("--alpha", required=True, help="Samples per dimension: a number, or a range LO:HI or LO:HI:N."),
    click.option(
        "--nu", default=None, help="Signal strength, a number or a range as all of these; needed for any scores."
    ),
    click.option("--noise", default="0", show_default=True, help="Label noise, a standard deviation."),
    click.option("--lambda-k", "lambda_k", default="1", show_default=True),
    click.option("--lambda-v", "lambda_v", default="1", show_default=True),
    click.option("--param", "parameters", multiple=True, callback=_param_ranges, metavar="NAME=NUMBER|RANGE"),
)
physics = together(
    points,
    click.option("--init", default="informed", show_default=True, help="informed or random."),
)
learned = together(
    click.option(
        "--loss",
        default="quadratic",
        show_default=True,
        help="quadratic, absolute, huber:DELTA, logistic, hinge, or an expression in y and f.",
    ),
    click.option(
        "--labels",
        default="gaussian",
        show_default=True,
        help="gaussian, sign, logit:GAMMA, probit:GAMMA, magnitude, outliers:P:SIZE, or an expression in z and xi.",
    ),
)
digits = whole(
    "--digits",
    "digits",
    default=None,
    help="Absolute error asked for: 10^-digits; when left out, what is reached in a few seconds.",
)
dim = whole("--dim", "dim", default="400", show_default=True, help="Largest dimension; D/4, D/2 and D are trained.")


def seeds(default: int) -> Option:
    """The number of trainings."""
    return whole("--seeds", "seeds", default=str(default), show_default=True, help="Trainings per dimension.")


def folder(default: str, what: str) -> Option:
    """The folder that a verb leaves its files in."""
    text = f"The folder to leave {what} in."
    return click.option("-o", "--output", default=default, show_default=True, help=text)


beside = click.option(
    "-o", "--output", default=None, help="The figure: .svg, .pdf or .png; CSV and JSON are left beside it."
)
radii = click.option("--radii", default=None, help="Tokens times radii drawn from a file of them, one a token.")
spectrum = together(
    click.option("--spectrum", default=None, help="Structured tokens: power:A:D, or a file of eigenvalues."),
    click.option("--teacher", default=None, help="With a spectrum: isotropic, white, top:P, or a file of weights."),
)
