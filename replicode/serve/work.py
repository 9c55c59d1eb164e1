"""What the process of a job does: compute, and tell the server event by event through a pipe.

Everything that is computed here is kept in the cache as soon as it is there, so that a job which is stopped, or a
server that is started again, loses nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

OWN = ("activations", "suite")  # arguments that are not those of `curve`
DATA_BYTES = 4 * 2**30
Tell = Callable[[str, Any], None]


def run(pipe: Any, kind: str, arguments: Mapping[str, Any]) -> None:
    """Compute in a group of processes of its own, within bounds; the last event says how it ended."""
    _alone()
    threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()

    def tell(name: str, content: Any) -> None:
        with suppress(OSError):  # the server is gone, and this process with it
            pipe.send((name, content))

    from replicode.codegen.threads import one_thread
    from replicode.theory.errors import ReplicodeError

    try:
        with one_thread():
            KINDS[kind](arguments, tell)
        tell("done", {})
    except ReplicodeError as problem:
        tell("failed", {"message": str(problem)})
    except MemoryError:
        tell("failed", {"message": "the memory that a job may use is spent"})
    except Exception as problem:
        tell("failed", {"message": f"error of ours: {type(problem).__name__}: {problem}"[:600]})


def _alone() -> None:
    with suppress(AttributeError, OSError):
        os.setsid()
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
    with suppress(AttributeError, OSError):
        os.nice(5)


def _end_with(pipe: Any) -> None:
    """The server never writes: what can be read is that it is gone."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os._exit(1)


def explore(arguments: Mapping[str, Any], tell: Tell) -> None:
    """Properties and equations, then curves node by node, then the Bayes line, the numbers and the property suite."""
    from replicode.reports import page
    from replicode.reports.contents import equations_by_title
    from replicode.reports.kept import kept_check, kept_facts

    made, task, tokens = _settled(arguments), arguments["task"], arguments["tokens"]
    chosen = {m.name: dict(m.chosen) for m in made}
    tell("names", {"names": [m.name for m in made], "chosen": chosen, "bayes": arguments["bayes"]})
    facts = {m.name: kept_facts(m.as_argument, task, tokens) for m in made}
    tell("properties", {"html": page.facts_table(facts)})
    shared, own = equations_by_title(made, task, tokens, arguments["bayes"])
    parameters = [p for f in facts.values() for p in f["parameters"]]
    tell("equations", {"html": page.equations_of(shared, own, parameters)})
    curves(arguments, made, tell)
    if not arguments["suite"]:
        return
    tell("progress", {"text": "property suite"})
    checks = {m.name: kept_check(m.as_argument, task, tokens) for m in made}
    tell("suite", {"html": page.suite_table(checks)})


def curves(arguments: Mapping[str, Any], made: Any, tell: Tell) -> None:
    """One activation after the other, every node told; the Bayes line last, for it does not wait for anything."""
    from replicode.reports import charts, page
    from replicode.reports.contents import renamed
    from replicode.verbs.curve import curve

    names = [m.name for m in made]
    parameter, logarithmic, options = _axis(arguments)

    def drawn(rows: charts.Rows) -> None:
        axis = charts.AXES.get(parameter, parameter)
        summary = f"Test risk of {', '.join(names)} against {parameter}; the numbers are in the table."
        tell("chart", {"spec": charts.chart(rows, names, axis, charts.RISK, logarithmic, summary)})

    done: charts.Rows = []

    def heard(name: str) -> Callable[[str, float, Mapping[str, Any]], None]:
        so_far: dict[float, Mapping[str, Any]] = {}

        def on_node(_: str, value: float, node: Mapping[str, Any]) -> None:
            so_far[value] = node
            tell("progress", {"text": f"{name}: {len(so_far)} solved, {parameter} = {value:.4g}"})
            drawn(done + charts.node_rows(name, so_far))

        return on_node

    found = []
    for each in made:
        whole = curve(each.as_argument, on_node=heard(each.name), **{**options, "bayes": False})
        found.append(renamed(whole, [each.name]))
        done.extend(charts.curve_rows(found[-1]))
        drawn(done)
    warnings = [w for f in found for w in f.warnings]
    tell("warnings", {"warnings": warnings})
    joined = _joined(found)
    tell("numbers", {"html": page.numbers(joined)})
    if arguments["bayes"]:
        tell("progress", {"text": "Bayes-optimal line"})
        line = curve(made[0].as_argument, **options).activations
        risks = next(iter(line.values()))["bayes_risk"]
        drawn(done + charts.bayes_rows(joined.values, risks))
        tell("numbers", {"html": page.numbers(_with_bayes(joined, risks))})


def _settled(arguments: Mapping[str, Any]) -> Any:
    from replicode.reports.settled import settled

    names = arguments["activations"]
    return settled(names, arguments["task"], arguments["tokens"], arguments["nu"], arguments["parameters"])


def _options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `curve`, of the parameters those that are ranges: the others are in the activations."""
    from replicode.inputs.ranges import Range, read_range

    ranges = {n: v for n, v in arguments["parameters"].items() if isinstance(read_range(n, v), Range)}
    return {n: v for n, v in arguments.items() if n not in OWN} | {"parameters": ranges}


def _axis(arguments: Mapping[str, Any]) -> tuple[str, bool, dict[str, Any]]:
    from replicode.inputs.arguments import PHYSICS
    from replicode.inputs.ranges import Range, read_range

    options = _options(arguments)
    given = {**options, **options["parameters"]}
    numbers = {n: given[n] for n in (*PHYSICS, *options["parameters"])}
    ranges = [r for r in (read_range(n, v) for n, v in numbers.items()) if isinstance(r, Range)]
    return (ranges[0].name, ranges[0].logarithmic, options) if ranges else ("alpha", False, options)


def _joined(found: Any) -> Any:
    return replace(found[0], activations={n: c for f in found for n, c in f.activations.items()})


def _with_bayes(found: Any, risks: Any) -> Any:
    return replace(found, activations={n: {**c, "bayes_risk": risks} for n, c in found.activations.items()})


def module(arguments: Mapping[str, Any], tell: Tell) -> None:
    """The generated solver of the first activation."""
    from replicode.modules import module_source

    (each, *_) = _settled(arguments)
    _file(
        tell, "attention.py", "text/x-python", module_source(each.as_argument, arguments["task"], arguments["tokens"])
    )


def latex(arguments: Mapping[str, Any], tell: Tell) -> None:
    """The derivation of the first activation as a LaTeX document."""
    from replicode.verbs.derive import derivation_of

    (each, *_) = _settled(arguments)
    found = derivation_of(each.as_argument, arguments["task"], arguments["tokens"])
    _file(tell, "derivation.tex", "application/x-tex", found["latex"])


def csv(arguments: Mapping[str, Any], tell: Tell) -> None:
    """The curves of all activations as CSV."""
    from replicode.figures.table import as_csv
    from replicode.reports.contents import renamed
    from replicode.verbs.curve import curve

    made = _settled(arguments)
    found = curve(*(m.as_argument for m in made), **_options(arguments))
    _file(tell, "curve.csv", "text/csv", as_csv(renamed(found, [m.name for m in made]).rows()))


def report(arguments: Mapping[str, Any], tell: Tell) -> None:
    """The report page of all activations."""
    from replicode.reports.contents import contents
    from replicode.reports.page import page

    rest = {n: v for n, v in arguments.items() if n not in OWN}
    found = contents(arguments["activations"], lambda said: tell("progress", {"text": said}), rest)
    _file(tell, "report.html", "text/html", page(found))


def _file(tell: Tell, name: str, kind: str, content: str) -> None:
    tell("file", {"name": name, "type": f"{kind}; charset=utf-8", "content": content.encode()})


KINDS: dict[str, Callable[[Mapping[str, Any], Tell], None]] = {
    job.__name__: job for job in (explore, module, latex, csv, report)
}
