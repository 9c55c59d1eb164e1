"""The command line. Thin: it reads arguments, calls the API, prints, and sets the exit status.

Exit status: 0 done; 1 computed but not to be trusted as it stands; 2 bad input.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from replicode.theory.errors import InputError, Refusal, ReplicodeError

SCHEMA = 1


class _Group(click.Group):
    """Turns our errors into one message on standard error and the exit status that goes with it."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as problem:
            click.echo(f"error: {problem}", err=True)
            ctx.exit(2)
        except Refusal as refusal:
            if ctx.obj == "json":
                _print_json("refused", {"warnings": [str(refusal)]})
            click.echo(f"refused: {refusal}", err=True)
            ctx.exit(1)
        except ReplicodeError as problem:
            click.echo(f"error: {problem}", err=True)
            ctx.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="replicode")
def main() -> None:
    """Replica theory of attention: derive, generate, solve, validate."""


def _options(*options: Callable[..., Any]) -> Callable[..., Any]:
    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


def _parameters(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, float]:
    values = {}
    for text in given:
        name, _sign, number = text.partition("=")
        try:
            values[name.strip()] = float(number)
        except ValueError:
            raise InputError("param", text, "NAME=NUMBER, as in c=0.5") from None
    return values


def _float(name: str, text: str, allowed: str = "a number") -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(name, text, allowed) from None


def _number(name: str) -> Callable[[click.Context, click.Parameter, str | None], float | None]:
    def convert(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
        return None if text is None else _float(name, text)

    return convert


def _integer(name: str) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    def convert(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise InputError(name, text, "a whole number") from None

    return convert


def _noted(ctx: click.Context, _: click.Parameter, as_json: bool) -> bool:
    """Leave word for the error handler that JSON was asked for."""
    ctx.find_root().obj = "json" if as_json else None
    return as_json


def _real(flag: str, name: str, **more: Any) -> Callable[..., Any]:
    return click.option(flag, name, callback=_number(name), metavar="NUMBER", **more)


def _whole(flag: str, name: str, **more: Any) -> Callable[..., Any]:
    return click.option(flag, name, callback=_integer(name), metavar="INTEGER", **more)


_activation = click.argument("activation")
_task = click.option("--task", default="spiked", show_default=True, help="spiked, max, or a log-weight in x and nu.")
_tokens = click.option("--tokens", required=True, help="Number of tokens, or a distribution such as 1:0.2,2:0.3,3:0.5.")
_param = click.option("--param", "parameters", multiple=True, callback=_parameters, metavar="NAME=NUMBER")
_json = click.option(
    "--json", "as_json", is_flag=True, is_eager=True, callback=_noted, help="One JSON object on standard output."
)
_physics = _options(
    _real("--alpha", "alpha", required=True, help="Samples per dimension."),
    _real("--nu", "nu", required=True, help="Signal strength; inf where the limit exists."),
    _real("--noise", "noise", default="0", show_default=True, help="Label noise, a standard deviation."),
    _real("--lambda-k", "lambda_k", default="1", show_default=True),
    _real("--lambda-v", "lambda_v", default="1", show_default=True),
    click.option("--init", default="informed", show_default=True, help="informed or random."),
)


def _digits(default: int) -> Callable[..., Any]:
    text = "Absolute error asked for: 10^-digits."
    return _whole("--digits", "digits", default=str(default), show_default=True, help=text)


@main.command()
@_activation
@_task
@click.option("--tokens", default=None, help="Number of tokens or a distribution of it; symbolic when left out.")
@click.option("--level", default="rs", show_default=True, help="rs, population, bayes or stability.")
@click.option("--format", "style", default="text", show_default=True, help="text, latex, markdown or json.")
@_param
@_json
def derive(
    activation: str,
    task: str,
    tokens: str | None,
    level: str,
    style: str,
    parameters: dict[str, float],
    as_json: bool,
) -> None:
    """Free energy, saddle-point equations, reductions and the chain that leads to them."""
    _one_of("level", level, ("rs", "population", "bayes", "stability"))
    _one_of("format", style, ("text", "latex", "markdown", "json"))
    from replicode.verbs.derive import derivation_of

    found = derivation_of(activation, task, tokens, level, parameters)
    if as_json or style == "json":
        _print_json("derive", found["json"])
    else:
        click.echo(found[style])


@main.command()
@_activation
@_task
@_whole("--tokens", "tokens", default=None, help="Number of tokens; symbolic when left out.")
@_param
@_json
def check(activation: str, task: str, tokens: int | None, parameters: dict[str, float], as_json: bool) -> None:
    """Symbolic properties of an activation, then the property suite."""
    from replicode.verbs.check import as_text
    from replicode.verbs.check import check as checked

    result = checked(activation, task, tokens, parameters)
    if as_json:
        _print_json("check", result.to_dict())
    else:
        click.echo(as_text(result))
    for warning in result.warnings:
        click.echo(f"warning: {warning}", err=True)
    if not result.ok:
        click.get_current_context().exit(1)


@main.command()
@_activation
@_task
@_tokens
@_real("--nu", "nu", required=True, help="Signal strength; inf where the limit exists.")
@_real("--noise", "noise", default="0", show_default=True, help="Label noise, a standard deviation.")
@_digits(8)
@_param
@_json
def population(activation: str, parameters: dict[str, Any], as_json: bool, **arguments: Any) -> None:
    """The best risk with infinite data, over k, v and the parameters left free, beside the Bayes risk."""
    from replicode.verbs.population import population as best

    found = best(activation, **arguments, parameters=parameters)
    _finish("population", found.to_dict(), as_json, list(found.warnings))


@main.command()
@_task
@_tokens
@_real("--nu", "nu", required=True, help="Signal strength; inf where the limit exists.")
@click.option("--alpha", required=True, help="Samples per dimension, or a range LO:HI to look for thresholds in.")
@_real("--noise", "noise", default="0", show_default=True, help="Label noise, a standard deviation.")
@_digits(6)
@click.option("-o", "--output", default=None, help="With a range: the file to draw both branches to.")
@_json
def bayes(alpha: str, digits: int, output: str | None, as_json: bool, **arguments: Any) -> None:
    """The Bayes-optimal test risk at finite samples, with its branches; over a range of alpha, its thresholds."""
    if ":" in alpha:
        _bayes_range(_range("alpha", alpha), output, as_json, arguments)
        return
    if output is not None:
        raise InputError("output", output, "nothing, unless --alpha is a range LO:HI")
    from replicode.verbs.bayes import bayes as optimal

    found = optimal(alpha=_float("alpha", alpha, "a number or a range LO:HI"), digits=digits, **arguments)
    _finish("bayes", found.to_dict(), as_json, list(found.warnings))


def _range(name: str, text: str) -> tuple[float, float]:
    """The two ends of LO:HI."""
    low, _, high = text.partition(":")
    return _float(name, low, "the lower end of a range LO:HI"), _float(name, high, "the upper end of a range LO:HI")


def _bayes_range(ends: tuple[float, float], output: str | None, as_json: bool, arguments: dict[str, Any]) -> None:
    """Branches on a grid of the range, the thresholds in it, and a figure of both when asked for."""
    from replicode.bayes_phase import RANGE_POINTS, bayes_branches, figure, thresholds

    target = None if output is None else _writable(output)
    marks = thresholds(**arguments, low=ends[0], high=ends[1])
    step = (ends[1] - ends[0]) / (RANGE_POINTS - 1)
    found = bayes_branches(**arguments, alphas=[ends[0] + step * i for i in range(RANGE_POINTS)])
    drawn = None if target is None else figure(found, marks, target)
    if target is not None and drawn is None:
        raise InputError("output", output, "nothing without matplotlib: install the extra replicode[plot]")
    result = found.as_dict() | {"thresholds": marks.as_dict(), "figure": drawn}
    shown = result if as_json else {"thresholds": marks.as_dict(), "figure": drawn}
    _finish("bayes", shown, as_json, [])


@main.command()
@_activation
@_task
@_tokens
@click.option("-o", "--output", required=True, help="The file to write.")
@_param
@_json
def generate(activation: str, task: str, tokens: str, output: str, parameters: dict[str, float], as_json: bool) -> None:
    """Write a standalone NumPy solver for an activation."""
    from replicode.codegen.emit import generate as generated
    from replicode.theory.activation import activation as settled
    from replicode.theory.lengths import lengths
    from replicode.verbs.derive import derive as derived

    law = lengths(tokens)
    target = _writable(output)
    system = derived(settled(activation, parameters), task, law)
    module = generated(system)
    try:
        module.save(target)
    except OSError as problem:
        raise InputError("output", output, f"a file that can be written ({problem.strerror})") from None
    result = {
        "path": str(target),
        "signature": module.signature,
        "activation": system.activation.text,
        "task": system.task.text,
        "tokens": law.fixed or str(law),
        "operations": dict(module.operations),
    }
    _print("generate", result, as_json)


@main.command()
@_activation
@_task
@_tokens
@_physics
@_digits(8)
@click.option("--backend", default="numpy", show_default=True, help="numpy, or fast: compiled loops (C compiler).")
@_param
@_json
def solve(activation: str, parameters: dict[str, Any], as_json: bool, **arguments: Any) -> None:
    """Solve the saddle-point equations: test risk, order parameters, error, stability."""
    from replicode.arguments import DOUBLE_DIGITS
    from replicode.verbs.solve import solve as solved

    solution = solved(activation, **arguments, parameters=parameters)
    in_text = not as_json and arguments["digits"] > DOUBLE_DIGITS
    _finish("solve", solution.texts() if in_text else solution.to_dict(), as_json, list(solution.warnings))


@main.command()
@_activation
@_task
@_tokens
@_physics
@_digits(5)
@_whole("--dim", "dim", default="400", show_default=True, help="Largest dimension; D/4, D/2 and D are trained.")
@_whole("--seeds", "seeds", default="40", show_default=True, help="Trainings per dimension.")
@_param
@_json
def validate(activation: str, parameters: dict[str, Any], as_json: bool, **arguments: Any) -> None:
    """Train attention on sampled data and compare it with the theory."""
    from replicode.verbs.validate import validate as validated

    def progress(done: int, total: int, text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{done}/{total} {text}   ", err=True, nl=done == total)
        elif done % max(1, total // 4) == 0:
            click.echo(f"{done}/{total} trainings", err=True)

    report = validated(activation, progress=progress, **arguments, parameters=parameters)
    _finish("validate", report.to_dict(), as_json, list(report.warnings), trusted=report.ok)


@main.command()
@_activation
@_task
@_tokens
@click.option("--nu", "nus", default="0.5,1,2,4", show_default=True, help="Signal strengths, separated by commas.")
@click.option(
    "--lambda", "lambdas", default="0.02,0.05,0.1,0.2,0.5,1,2", show_default=True, help="Values of both lambdas."
)
@_real("--alpha", "alpha", default="3", show_default=True, help="Samples per dimension.")
@_real("--noise", "noise", default="0.3", show_default=True, help="Label noise, a standard deviation.")
@_digits(4)
@_whole("--dim", "dim", default="400", show_default=True, help="Largest dimension; D/4, D/2 and D are trained.")
@_whole("--seeds", "seeds", default="24", show_default=True, help="Trainings per dimension.")
@click.option("--quick", is_flag=True, help="A corner of the map at small D, in a minute or so.")
@click.option(
    "-o", "--output", default="study", show_default=True, help="The folder to leave trainings, rows and map in."
)
@_param
@_json
def study(
    activation: str,
    nus: str,
    lambdas: str,
    quick: bool,
    output: str,
    parameters: dict[str, Any],
    as_json: bool,
    **arguments: Any,
) -> None:
    """Where theory and training part: a map over (nu, lambda) with the edge of stability on top. Resumable."""
    from replicode.study import run

    signals, penalties = (
        [_float(n, part) for part in text.split(",")] for n, text in (("nu", nus), ("lambda", lambdas))
    )
    where = Path(output)
    result = run(
        activation,
        signals,
        penalties,
        where,
        quick,
        lambda text: click.echo(text, err=True),
        **arguments,
        parameters=parameters,
    )
    shown = result if as_json else {"map": result["map"], "table": result["table"]}
    _finish("study", shown, as_json, result["warnings"])


@main.command()
@click.argument("name")
@click.option("-o", "--output", default="figures", show_default=True, help="The folder to leave the figure in.")
@click.option("--quick", is_flag=True, help="Fewer and coarser points, in under a minute.")
@click.option("--optimal", is_flag=True, help="finite-sample: the lambdas of least test risk instead of 1. Long.")
@_json
def figure(name: str, output: str, quick: bool, optimal: bool, as_json: bool) -> None:
    """The paper's figures, recomputed: population or finite-sample, as SVG and PDF with the data as CSV. Resumable."""
    from replicode.figures import figure as drawn

    found = drawn(name, output, quick=quick, optimal=optimal, say=lambda text: click.echo(text, err=True))
    shown = found.to_dict() if as_json else {"files": ", ".join(found.files)}
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    _finish("figure", shown, as_json, list(found.warnings))


@main.command()
@click.option("-o", "--output", default="demo", show_default=True, help="The folder to leave the results in.")
@_json
def demo(output: str, as_json: bool) -> None:
    """Derive, generate, solve and validate softmax and linear attention, with a figure."""
    from replicode.demo import run

    result = run(Path(output), lambda text: click.echo(text, err=True))
    shown = result if as_json else {"folder": result["folder"], "figure": result["figure"]}
    _finish("demo", shown, as_json, result["warnings"])


@main.command()
@click.option("--clear", is_flag=True, help="Remove every entry.")
@_json
def cache(clear: bool, as_json: bool) -> None:
    """Show or clear the cache of derived systems and generated modules."""
    from replicode import cache as store

    result: dict[str, Any] = {"folder": str(store.cache_folder())}
    result |= {"removed": store.clear()} if clear else {"entries": store.entries()}
    if as_json or clear:
        _print("cache", result, as_json)
        return
    click.echo(result["folder"])
    for entry in result["entries"]:
        state = "" if entry["intact"] else "  damaged, will be rebuilt"
        click.echo(f"{entry['bytes']:>9}  {entry['made_for'] or entry['file']}{state}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(name, value, " or ".join(allowed))


def _writable(output: str) -> Path:
    """A path in an existing folder, not a folder itself, before any work is done."""
    target = Path(output)
    if target.is_dir() or not target.parent.is_dir():
        raise InputError("output", output, "a file in a folder that exists")
    return target


def _finish(
    command: str, result: dict[str, Any], as_json: bool, warnings: list[str], trusted: bool | None = None
) -> None:
    """Print a result with its warnings, and leave with status 1 when it is not to be trusted as it stands."""
    _print(command, result, as_json)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if not (not warnings if trusted is None else trusted):
        click.get_current_context().exit(1)


def _print(command: str, result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _print_json(command, result)
    else:
        _print_lines(result)


def _print_json(command: str, result: dict[str, Any]) -> None:
    click.echo(json.dumps({"schema": f"replicode/{command}/{SCHEMA}", **_finite(result)}))


def _finite(value: Any) -> Any:
    """JSON-ready: numbers that are not finite become null."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, (list, tuple)) else value


def _print_lines(result: dict[str, Any], indent: str = "") -> None:
    width = max((len(k) for k in result), default=0)
    for key, value in result.items():
        if isinstance(value, dict):
            click.echo(f"{indent}{key}")
            _print_lines(value, indent + "  ")
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
            for row in value:
                click.echo(f"{indent}{key}")
                _print_lines(row, indent + "  ")
        elif key != "warnings":
            click.echo(
                f"{indent}{key:<{width}}  {value:.12g}"
                if isinstance(value, float)
                else f"{indent}{key:<{width}}  {value}"
            )


if __name__ == "__main__":
    main()
