"""One HTML file of a report's contents: styles, scripts, data, equations, code and figures inside, nothing to fetch.

A Content-Security-Policy allows the page's own scripts by their hashes and nothing else. Every text that a user typed
is escaped. The same contents give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from replicode import __version__
from replicode.figures.table import as_csv
from replicode.inputs.arguments import PHYSICS
from replicode.reports import charts
from replicode.reports.contents import Contents, Part
from replicode.reports.mathematics import Equation
from replicode.reports.setting import model_statement, symbols
from replicode.uncertain import with_error
from replicode.verbs.check import FACTS, shown

if TYPE_CHECKING:
    from replicode.verbs.curve import Curve

TABLE_VALUES = 7
RUN_ON = ("numpy", "scipy", "sympy")
text = html.escape


def page(found: Contents) -> str:
    """The whole file."""
    scripts = [charts.bundle(), asset("chart.js"), asset("page.js")]
    style = asset("page.css")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(_hash(s) for s in scripts)}",
            "style-src 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    names = [part.name for part in found.parts]
    title = f"{_listed(names)}: test risk of attention"
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f'<meta name="generator" content="Replicode {__version__}">',
        f"<title>{text(title)}</title>",
        f"<style>{style}</style>",
    ]
    sections = [*_sections(found)]
    contents = "".join(f'<li><a href="#{key}">{text(name)}</a></li>' for key, name, _ in sections)
    body = [
        '<a class="skip" href="#main">Skip to the report</a>',
        f"<header><p class=brand>Replicode report</p><h1>{text(title)}</h1>{_lead(found)}</header>",
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>',
        f'<main id="main">{_warned(found.warnings)}',
        *(f'<section id="{key}"><h2>{text(name)}</h2>{inner}</section>' for key, name, inner in sections),
        "</main>",
        *(f"<script>{script}</script>" for script in scripts),
    ]
    joined = "\n".join(["<head>", *head, "</head>", "<body>", *body, "</body>"])
    return f'<!DOCTYPE html>\n<html lang="en">\n{joined}\n</html>\n'


def asset(name: str) -> str:
    """A file of the page's own; nothing in it may end the element that it stands in."""
    found = files("replicode.reports").joinpath("static", name).read_text(encoding="utf-8")
    assert "</script" not in found and "</style" not in found
    return found


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _lead(found: Contents) -> str:
    told = found.curve.asked
    fixed = {n: told[n] for n in PHYSICS if n != found.curve.parameter}
    if told.get("optimal"):
        fixed = {n: v for n, v in fixed.items() if not n.startswith("lambda")}
    low, high = found.curve.values[0], found.curve.values[-1]
    parts = [f"task {told['task']}", f"{told['tokens']} tokens", f"{found.curve.parameter} from {low:g} to {high:g}"]
    parts += [f"{n} = {v:g}" for n, v in fixed.items()] + (["best lambdas"] if told.get("optimal") else [])
    return f'<p class="lead">{text(", ".join(parts))}</p>'


def _warned(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{text(w)}</li>" for w in warnings)
    return f'<aside class="warnings" aria-label="Warnings"><h2>Warnings</h2><ul>{items}</ul></aside>'


def _sections(found: Contents) -> Iterable[tuple[str, str, str]]:
    yield "curves", "Finite samples", _curves(found)
    yield "infinite", "Infinite data", _infinite(found)
    yield "properties", "Properties", _properties(found.parts)
    yield "model", "The model", model_statement(found.curve.asked)
    yield "equations", "Equations", _equations(found)
    yield "code", "Generated code", _code(found)
    yield "provenance", "Provenance", _provenance(found)


def _curves(found: Contents) -> str:
    names, parameter = [p.name for p in found.parts], found.curve.parameter
    rows = charts.curve_rows(found.curve)
    values = found.curve.values
    logarithmic = values[0] > 0.0 and values[-1] >= 4.0 * values[0]
    axis = charts.AXES.get(parameter, parameter)
    summary = f"Test risk of {_listed(names)} against {parameter}, from {values[0]:g} to {values[-1]:g}; numbers below."
    risk = charts.chart(rows, names, axis, charts.RISK, logarithmic, summary)
    has_bayes = any(r["kind"] == "bayes" for r in rows)
    words = ["Lines are the replica-symmetric theory, with a band as wide as their error."]
    words += ["Dashed: replica symmetry is broken there."] if any(r["kind"] == "broken" for r in rows) else []
    words += ["Marks are trained attention, two standard errors."] if any(r["kind"] == "trained" for r in rows) else []
    chosen = [f"{n} = {v:.4g} for {p.name}" for p in found.parts for n, v in p.chosen.items()]
    words += [f"Taken from the optimum with infinite data: {', '.join(chosen)}."] if chosen else []
    edge = charts.replicon_rows(rows)
    replicon = charts.chart(
        edge, names, axis, "replicon", logarithmic, f"Replicon against {parameter}; the edge is at one."
    )
    replicon["height"] = 200
    table_uri = _data_uri("text/csv", as_csv(found.curve.rows()))
    return "".join(
        [
            figure("risk", risk, names, has_bayes, " ".join(words)),
            numbers(found.curve),
            "<h3>Is replica symmetry stable?</h3>",
            figure("replicon", replicon, names, False, "The replicon: stable while below one, where the grey line is."),
            f'<p><a download="curve.csv" href="{table_uri}">Download as CSV</a></p>',
        ]
    )


def figure(key: str, spec: charts.Spec, names: Sequence[str], with_bayes: bool, caption: str) -> str:
    """A chart with its switches, its static twin for print, and its caption."""
    switches = "".join(_switch(name, f"s{i % len(charts.COLOURS)}") for i, name in enumerate(names))
    switches += _switch(charts.BAYES, "bayes") if with_bayes else ""
    buttons = "".join(
        f'<button type="button" data-zoom="{kind}">{words}</button>'
        for kind, words in (("in", "Zoom in"), ("out", "Zoom out"), ("all", "Show all"))
    )
    picture = _data_uri("image/svg+xml", charts.static_svg(spec))
    described = text(spec["description"])
    return f"""<figure class="chart" id="chart-{key}">
<fieldset class="legend"><legend>Lines</legend>{switches}</fieldset>
<div class="drawing" role="img" aria-label="{described}"></div>
<img class="static" src="{picture}" alt="{described}">
<div class="tools">{buttons}<span class="hint">Drag to move, Ctrl and wheel to zoom.</span></div>
<figcaption>{text(caption)}</figcaption>
<script type="application/json">{_json(spec)}</script>
</figure>"""


def _switch(name: str, colour: str) -> str:
    box = f'<input type="checkbox" checked data-series="{text(name)}">'
    return f'<label>{box}<span class="swatch {colour}"></span>{text(name)}</label>'


def _json(value: Any) -> str:
    """JSON inside a script element: nothing in it can end the element."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _data_uri(kind: str, content: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content.encode()).decode()}"


def numbers(curve: Curve) -> str:
    """The test risk at a few values of the parameter, to its error."""
    count = min(TABLE_VALUES, len(curve.values))
    places = sorted({round(i * (len(curve.values) - 1) / max(count - 1, 1)) for i in range(count)})
    head = [curve.parameter, *curve.activations, charts.BAYES]
    rows = []
    for i in places:
        cells = [f"{curve.values[i]:.4g}"]
        for columns in curve.activations.values():
            risk, error, stable = (columns[n][i] for n in ("test_risk", "error", "rs_stable"))
            cells.append(with_error(risk, error) + ("" if stable else " (broken)"))
        bayes = next(iter(curve.activations.values()))["bayes_risk"][i]
        rows.append([*cells, "–" if bayes is None else f"{bayes:.6f}"])
    return table("Test risk; 0.539931(2) is off by at most 2 in the last digit shown.", head, rows)


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """A table whose first column names the rows; wide ones scroll by themselves."""
    top = "".join(f'<th scope="col">{text(c)}</th>' for c in head)
    lines = "".join(f'<tr><th scope="row">{text(row[0])}</th>{"".join(_cell(c) for c in row[1:])}</tr>' for row in rows)
    inner = f"<caption>{text(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{lines}</tbody>"
    outer = f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}">'
    return f'{outer}<table class="{kind}">{inner}</table></div>'


def _cell(content: str) -> str:
    mark = {"passed": "passed", "failed": "failed", "not applicable": "idle"}.get(content, "")
    return f'<td class="{mark}">{text(content)}</td>' if mark else f"<td>{text(content)}</td>"


def _infinite(found: Contents) -> str:
    names = [p.name for p in found.parts]
    solved = [r for r in found.infinite if "refused" not in r]
    refused = [f"<p>{text(r['activation'])}: {text(r['refused'])}</p>" for r in found.infinite if "refused" in r]
    drawn = ""
    if len({r["nu"] for r in solved}) > 1:
        rows = charts.infinite_rows(solved)
        summary = f"Best test risk with infinite data of {_listed(names)} against nu; numbers below."
        spec = charts.chart(rows, names, charts.AXES["nu"], charts.RISK, False, summary)
        drawn = figure("infinite", spec, names, True, "The best that each activation can do, whatever the data.")
    head = ["activation", "nu", "test risk", "excess risk", "closed form", "parameters", "attains Bayes"]
    best = table("At the optimum over k, v and free parameters.", head, [_best(p) for p in found.parts if p.best])
    return drawn + best + "".join(refused)


def _best(part: Part) -> list[str]:
    best = part.best or {}
    return [
        part.name,
        f"{best['nu']:g}",
        with_error(best["test_risk"], best["error"]),
        with_error(best["excess_risk"], best["error"]),
        best["closed_form"] or "none",
        ", ".join(f"{n} = {v:.4g}" for n, v in best["parameters"].items()) or "none",
        "yes" if best["nishimori"] else "no",
    ]


def _properties(parts: Sequence[Part]) -> str:
    checks = {p.name: p.check for p in parts}
    return facts_table(checks) + suite_table(checks)


def facts_table(checks: Mapping[str, Mapping[str, Any]]) -> str:
    """The symbolic properties of every activation."""
    rows = [[name.replace("_", " "), *(shown(found[name]) for found in checks.values())] for name in FACTS]
    return table("What the symbolic analysis found.", ["property", *checks], rows)


def suite_table(checks: Mapping[str, Mapping[str, Any]]) -> str:
    """The verdicts of the property suite, folded, with their counts."""
    found = {name: check["properties"] for name, check in checks.items()}
    names = list(dict.fromkeys(n for verdicts in found.values() for n in verdicts))
    rows = [[n, *(verdicts.get(n, "not applicable") for verdicts in found.values())] for n in names]
    counts = ", ".join(
        f"{name}: {list(v.values()).count('passed')} passed, {list(v.values()).count('failed')} failed"
        for name, v in found.items()
    )
    inner = table("Property suite.", ["property", *found], rows)
    return f"<details><summary>Property suite ({text(counts)})</summary>{inner}</details>"


def block(found: Equation) -> str:
    """An equation, with room to scroll where it is wide."""
    kind = "equation wide" if found.wide else "equation"
    return f'<div class="{kind}" tabindex="0" role="group" aria-label="{text(found.name)}">{found.mathml}</div>'


def blocks(found: Iterable[Equation]) -> str:
    """Equations side by side where there is room."""
    return f'<div class="equations">{"".join(map(block, found))}</div>'


def _equations(found: Contents) -> str:
    parameters = [n for p in found.parts for n in p.check["parameters"]]
    return equations_of(found.shared, {p.name: p.equations for p in found.parts}, parameters)


def equations_of(
    shared: Mapping[str, Sequence[Equation]], own: Mapping[str, Sequence[Equation]], parameters: Sequence[str]
) -> str:
    """Equations that all activations share, then those of each, then what the symbols mean."""
    titled = {**shared, **own}
    out = [f"<h3>{text(title)}</h3>{blocks(equations)}" for title, equations in titled.items()]
    rows = symbols([e for equations in titled.values() for e in equations], parameters)
    lines = "".join(f'<tr><th scope="row">{mathml}</th><td>{text(words)}</td></tr>' for mathml, words in rows)
    legend = f"<table><caption>What the symbols mean</caption><tbody>{lines}</tbody></table>"
    lead = "<p>Derived from the model by SymPy; nothing is typed in by hand.</p>"
    return f"{lead}{''.join(out)}<details><summary>Symbols</summary>{legend}</details>"


def _code(found: Contents) -> str:
    out = ["<p>One file for each activation; it needs NumPy and SciPy, and nothing of Replicode.</p>"]
    for i, part in enumerate(found.parts):
        name = f"attention{i + 1}.py"
        link = f'<a download="{name}" href="{_data_uri("text/x-python", part.source)}">Download {name}</a>'
        lines = part.source.count("\n")
        out.append(
            f"<h3>{text(part.name)}</h3><p>{link} ({lines} lines, signature <code>{part.signature[:16]}</code>)</p>"
            f"<details><summary>Show the code of {text(part.name)}</summary>"
            f'<pre tabindex="0"><code>{text(part.source)}</code></pre></details>'
        )
    return "".join(out)


def _provenance(found: Contents) -> str:
    rows = [["Replicode", __version__], ["Python", platform.python_version()]]
    rows += [[package, version(package)] for package in RUN_ON]
    rows += [[f"signature of {p.name}", p.signature] for p in found.parts]
    rows += [[f"expression of {p.name}", p.expression] for p in found.parts]
    rows += [[f"solves of {n}", f"{len(nodes)}"] for n, nodes in found.curve.nodes.items()]
    rows += [[n.replace("_", " "), _option(v)] for n, v in found.options.items() if v not in (None, {}, "")]
    command = text(_command(found))
    line = f'<p>Made by</p><pre tabindex="0"><code>{command}</code></pre>'
    return line + table("Versions, signatures and options.", ["what", "value"], rows, "plain")


def _option(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{n} = {v}" for n, v in value.items())
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _command(found: Contents) -> str:
    """The command that makes this report again."""
    import shlex

    words = ["replicode", "report", *(shlex.quote(p.name) for p in found.parts)]
    for name, value in found.options.items():
        if name == "parameters":
            words += [f"--param {shlex.quote(f'{n}={v}')}" for n, v in (value or {}).items()]
        elif name == "bayes":
            words += [] if value else ["--no-bayes"]
        elif isinstance(value, bool):
            words += [f"--{name}"] if value else []
        elif value is not None:
            words.append(f"--{name.replace('_', '-')} {shlex.quote(_typed(value))}")
    return " ".join([*words, "-o report.html"])


def _typed(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ":".join(f"{v:g}" for v in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
