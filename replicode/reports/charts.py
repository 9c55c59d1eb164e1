"""Charts of a report in Vega-Lite: rows of data, and a specification that draws them.

The same specification is drawn by the browser, where one can hover, zoom and hide lines, and by vl-convert to a static
figure for print. Names of activations are data and nothing else, so that no text of a user is read as an expression.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from replicode.cache import cached
from replicode.extras import needed
from replicode.uncertain import with_error

if TYPE_CHECKING:
    from replicode.verbs.curve import Curve

_CLIP = re.compile(r"\bclip\d+\b")
Rows = list[dict[str, Any]]
Spec = dict[str, Any]
BAYES = "Bayes-optimal"
# The first four are Okabe's and Ito's; all stand out by 3:1 from white and from the dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#7B6BD0", "#8A7A00")
GREY = "#7D838C"
WIDTH, HEIGHT = 680, 320
AXES = {
    "alpha": "α = N/D, samples per dimension",
    "nu": "ν, signal strength",
    "noise": "Δ, label noise",
    "lambda_k": "λₖ, ridge of k",
    "lambda_v": "λᵥ, ridge of v",
}
RISK = "test risk E(y − f)²"
DASHES = {"stable": [1, 0], "broken": [5, 4], "bayes": [8, 3]}


def curve_rows(found: Curve) -> Rows:
    """The rows of a curve: theory by runs of one verdict, the Bayes line, nodes, and trained attention."""
    rows: Rows = []
    for name, columns in found.activations.items():
        rows += _theory(name, found.values, columns, found.jumps[name])
        rows += [_mark(name, m, found.parameter) for m in found.trained.get(name, ())]
    line = next(iter(found.activations.values()))["bayes_risk"]
    return rows + bayes_rows(found.values, line)


def bayes_rows(values: Sequence[float], line: Sequence[float | None]) -> Rows:
    """The rows of the Bayes line, none where it is not known."""
    points = [(v, r) for v, r in zip(values, line) if r is not None]
    return [{"series": BAYES, "kind": "bayes", "run": BAYES, "at": v, "risk": r, "says": f"{r:.6g}"} for v, r in points]


def _theory(
    name: str, values: Sequence[float], columns: Mapping[str, Sequence[Any]], jumps: Iterable[tuple[float, float]]
) -> Rows:
    """One row for every end of a piece: pieces of one verdict are one line, and a jump parts lines."""
    rows: Rows = []
    run, before = 0, None
    for i, j in pairwise(range(len(values))):
        if any(values[i] <= 0.5 * (a + b) <= values[j] for a, b in jumps):
            before = None
            continue
        ends = [_point(name, values, columns, k) for k in (i, j)]
        kind = "stable" if columns["rs_stable"][i] and columns["rs_stable"][j] else "broken"
        if any(e is None for e in ends):
            before = None
            continue
        if kind != before:
            run += 1
            rows.append({**ends[0], "kind": kind, "run": f"{name} {run}"})  # type: ignore[dict-item]
        rows.append({**ends[1], "kind": kind, "run": f"{name} {run}"})  # type: ignore[dict-item]
        before = kind
    return rows


def _point(name: str, values: Sequence[float], columns: Mapping[str, Sequence[Any]], i: int) -> dict[str, Any] | None:
    risk, error = columns["test_risk"][i], columns["error"][i]
    if not (math.isfinite(risk) and math.isfinite(error)):
        return None
    stable = columns["rs_stable"][i]
    return {
        "series": name,
        "at": values[i],
        "risk": risk,
        "low": risk - error,
        "high": risk + error,
        "says": with_error(risk, error),
        "replicon": columns["replicon"][i],
        "verdict": "stable" if stable else "replica symmetry is broken",
    }


def _mark(name: str, mark: Mapping[str, float], parameter: str) -> dict[str, Any]:
    mean, sem = mark["mean"], mark["sem"]
    return {
        "series": name,
        "kind": "trained",
        "run": f"{name} trained",
        "at": mark[parameter],
        "risk": mean,
        "low": mean - 2.0 * sem,
        "high": mean + 2.0 * sem,
        "says": f"{mean:.4f} ± {sem:.4f}",
    }


def node_rows(name: str, nodes: Mapping[float, Mapping[str, Any]]) -> Rows:
    """The rows of a curve that is not finished: straight lines through the nodes so far."""
    values = sorted(nodes)
    found = [nodes[v] for v in values]
    columns = {
        "test_risk": [f["values"]["test_risk"] for f in found],
        **{n: [f[n] for f in found] for n in ("error", "rs_stable", "replicon")},
    }
    return _theory(name, values, columns, ())


def infinite_rows(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """The rows of the best risks with infinite data, and of the Bayes line beside them."""
    solved = [r for r in rows if "refused" not in r]
    found: Rows = [
        {
            "series": r["activation"],
            "kind": "stable",
            "run": r["activation"],
            "at": r["nu"],
            "risk": r["test_risk"],
            "low": r["test_risk"] - r["error"],
            "high": r["test_risk"] + r["error"],
            "says": with_error(r["test_risk"], r["error"]),
        }
        for r in solved
    ]
    lines = {r["nu"]: r["bayes_risk"] for r in solved}
    return found + bayes_rows(list(lines), list(lines.values()))


def replicon_rows(rows: Rows) -> Rows:
    """The replicon along the curve, with the line at one where replica symmetry ends."""
    found = [
        {**r, "risk": r["replicon"], "low": r["replicon"], "high": r["replicon"], "says": f"{r['replicon']:.3g}"}
        for r in rows
        if r["kind"] in ("stable", "broken")
    ]
    ends = sorted({r["at"] for r in found})
    edge = [{"series": "edge", "kind": "bayes", "run": "edge", "at": v, "risk": 1.0, "says": "1"} for v in ends]
    return found + edge


def chart(rows: Rows, names: Sequence[str], axis: str, quantity: str, logarithmic: bool, description: str) -> Spec:
    """The specification over these rows; `hidden` names the series that are not drawn."""
    edge = "edge"
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(names))]
    colour = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": [*names, BAYES, edge], "range": [*colours, GREY, GREY]},
        "legend": None,
    }
    across = {"field": "at", "type": "quantitative", "title": axis, "scale": _across(rows, logarithmic)}
    risen = {"type": "quantitative", "title": quantity, "scale": _up(rows)}
    up, low = {"field": "risk", **risen}, {"field": "low", **risen}
    told = [
        {"field": "series", "type": "nominal", "title": "line"},
        {"field": "at", "type": "quantitative", "title": axis.partition(",")[0], "format": ".5g"},
        {"field": "says", "type": "nominal", "title": quantity.partition(" E(")[0]},
        {"field": "verdict", "type": "nominal", "title": "replica symmetry"},
    ]
    dash = {
        "field": "kind",
        "type": "nominal",
        "legend": None,
        "scale": {"domain": list(DASHES), "range": list(DASHES.values())},
    }
    lines = {"filter": {"field": "kind", "oneOf": list(DASHES)}}
    trained = {"filter": {"field": "kind", "equal": "trained"}}
    group = {"field": "run", "type": "nominal"}
    nearest = {
        "name": "near",
        "select": {"type": "point", "nearest": True, "on": "pointerover", "clear": "pointerout", "fields": ["at"]},
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": description,
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"name": "rows", "values": rows},
        "params": [{"name": "hidden", "value": []}],
        "transform": [{"filter": "indexof(hidden, datum.series) < 0"}],
        "encoding": {"x": across, "color": colour},
        "layer": [
            {
                "transform": [lines],
                "mark": {"type": "area", "opacity": 0.22, "clip": True, "interpolate": "monotone"},
                "encoding": {"y": low, "y2": {"field": "high"}, "detail": group},
                "params": [_zoom()],
            },
            {
                "transform": [lines],
                "mark": {"type": "line", "strokeWidth": 2, "clip": True, "interpolate": "monotone"},
                "encoding": {"y": up, "strokeDash": dash, "detail": group},
            },
            {
                "transform": [trained],
                "mark": {"type": "rule", "strokeWidth": 1.5, "clip": True},
                "encoding": {"y": low, "y2": {"field": "high"}},
            },
            {
                "transform": [trained],
                "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1, "clip": True, "tooltip": True},
                "encoding": {"y": up, "tooltip": told[:3]},
            },
            {
                "transform": [lines],
                "params": [nearest],
                "mark": {"type": "point", "filled": True, "size": 60, "clip": True},
                "encoding": {
                    "y": up,
                    "tooltip": told,
                    "opacity": {"condition": {"param": "near", "empty": False, "value": 1}, "value": 0},
                },
            },
        ],
        "config": _config(),
    }


def _zoom() -> Spec:
    """Drag to move, wheel with Ctrl to zoom: the wheel alone scrolls the page."""
    return {"name": "view", "select": {"type": "interval", "zoom": "wheel![event.ctrlKey]"}, "bind": "scales"}


def _across(rows: Rows, logarithmic: bool) -> Spec:
    ends = [r["at"] for r in rows] or [1.0, 2.0]
    return {"type": "log" if logarithmic else "linear", "nice": False, "domain": [min(ends), max(ends)]}


def _up(rows: Rows) -> Spec:
    """From the least to the largest with a little room: axes stay where they are when lines are hidden."""
    seen = [r[n] for r in rows for n in ("risk", "low", "high") if r.get(n) is not None] or [0.0, 1.0]
    room = 0.04 * (max(seen) - min(seen)) or 0.1
    return {"zero": False, "nice": False, "domain": [max(min(seen) - room, 0.0), max(seen) + room]}


def _config() -> Spec:
    """Colours of the page's own text, so that light and dark need no second drawing."""
    text = "currentColor"
    return {
        "aria": False,  # the figure has a text alternative and a table; hundreds of marks to tab through help nobody
        "mark": {"aria": False},
        "background": None,
        "font": "system-ui, Helvetica, Arial, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "aria": False,
            "labelColor": text,
            "titleColor": text,
            "domainColor": text,
            "tickColor": text,
            "gridColor": text,
            "gridOpacity": 0.12,
            "domainOpacity": 0.6,
            "tickOpacity": 0.6,
            "labelFontSize": 12,
            "titleFontSize": 13,
            "titleFontWeight": "normal",
            "labelOverlap": True,
            "tickCount": 7,
        },
    }


def static_svg(spec: Spec) -> str:
    """The chart as an SVG document, for print and for pages without scripts."""
    shown = [layer for layer in spec["layer"] if not any(p["name"] == "near" for p in layer.get("params", ()))]
    drawn = {**spec, "width": WIDTH, "layer": shown, "config": {**spec["config"], "background": "white"}}
    found = str(needed("vl_convert", "report").vegalite_to_svg(drawn))
    clips = dict.fromkeys(_CLIP.findall(found))  # numbered on from drawing to drawing
    numbers = {name: f"clip-{i}" for i, name in enumerate(clips)}
    return _CLIP.sub(lambda match: numbers[match[0]], found)


@lru_cache(maxsize=1)
def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the cache when it is there."""
    convert = needed("vl_convert", "report")

    def build() -> dict[str, Any]:
        return {"made_for": "Vega, the charts of a report", "script": convert.javascript_bundle()}

    return str(cached("bundle", (version("vl-convert-python"),), build)["script"])
