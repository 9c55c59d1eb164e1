"""Figures of training: risk and overlaps against time, the phase portrait in (m_k, m_v), and a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replicode.figures.drawing import picture
from replicode.verbs.dynamics import Dynamics

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "0.3")
LABELS = {
    "m_k": "$m_k$",
    "q_k": "$q_k$",
    "m_v": "$m_v$",
    "q_v": "$q_v$",
    "kv_star": r"$k\cdot v^*/D$",
    "vk_star": r"$v\cdot k^*/D$",
    "kv": r"$k\cdot v/D$",
}
CELLS = 17


def draw(found: Dynamics, activation: str, path: Path) -> str:
    """One activation in three panels, several in two."""
    panels = 2 if found.compare else 3
    with picture(path, 1, panels, dpi=None, figsize=(3.4 * panels, 3.0), constrained_layout=True) as (_, axes):
        if found.compare:
            _compared(axes, found, activation)
        else:
            _risk(axes[0], found, activation)
            _overlaps(axes[1], found)
            _portrait(axes[2], found)
        for axis in axes[:2]:
            axis.set_xlabel("time (steps/D)" if not found.asked["flow"] else "time")
    return str(path)


def _risk(axis: Any, found: Dynamics, activation: str) -> None:
    axis.plot(found.time, found.test_risk, color=COLOURS[0], label=f"{activation}, theory")
    _plateau(axis, found)
    if found.escape is not None:
        told = f"escape, {found.escape:.3g}"
        axis.axvline(found.escape, color=COLOURS[0], linewidth=0.8, linestyle="--", label=told)
    axis.set_ylabel("test risk")
    axis.legend(loc="upper right")


def _plateau(axis: Any, found: Dynamics) -> None:
    axis.axhline(found.plateau_risk, color="0.6", linewidth=0.8, linestyle=":", label="plateau")


def _overlaps(axis: Any, found: Dynamics) -> None:
    """Lines are theory; bands are the mean of SGD and one standard deviation over the seeds."""
    sgd = found.simulated
    for (name, values), colour in zip(found.order_parameters.items(), COLOURS):
        axis.plot(found.time, values, color=colour, label=LABELS[name])
        if sgd:
            mean, deviation = sgd["mean"][name][: len(found.time)], sgd["deviation"][name]
            low, high = ([m + s * d for m, d in zip(mean, deviation)] for s in (-1, 1))
            axis.fill_between(found.time, low, high, color=colour, alpha=0.25, linewidth=0)
    title = "overlaps" if not sgd else f"overlaps; bands: SGD, D = {sgd['dim']}, {sgd['seeds']} seeds"
    axis.set_title(title)
    axis.legend(ncol=2, fontsize=7.5)


def _portrait(axis: Any, found: Dynamics) -> None:
    """Directions of (m_k, m_v) with the other overlaps as at the end, both nullclines, and the trajectory."""
    from replicode.modules import call, module_for

    asked = found.asked
    of = asked["expression"], asked["log_weight"], asked["tokens"]
    module, own = module_for(*of, given=asked["parameters"], level="dynamics")
    path = found.order_parameters
    grids = [_span(path[name]) for name in ("m_k", "m_v")]
    at = {name: values[-1] for name, values in path.items()}
    how = {n: asked[n] for n in ("rate", "rate_v", "lambda_k", "lambda_v", "batch", "flow", "spherical")}
    nu = float(asked["nu"])
    rates = call(module, "field", nu=nu, noise=asked["noise"], m_k=grids[0], m_v=grids[1], at=at, **how, **own)
    axis.streamplot(*grids, *rates, color="0.75", density=0.8, linewidth=0.6, arrowsize=0.7)
    for rate, colour, name in zip(rates, COLOURS, ("m_k", "m_v"), strict=False):
        axis.contour(*grids, rate, levels=[0.0], colors=colour, linewidths=1.0, linestyles="--")
        axis.plot([], [], color=colour, linestyle="--", label=f"rate of {LABELS[name]} is 0")
    axis.plot(path["m_k"], path["m_v"], color="black", label="trajectory")
    axis.plot(path["m_k"][-1], path["m_v"][-1], "o", color="black")
    axis.set(xlabel="$m_k$", ylabel="$m_v$", xlim=grids[0][[0, -1]], ylim=grids[1][[0, -1]])
    axis.set_title("phase portrait, other overlaps as at the end")
    axis.legend(loc="lower right", fontsize=7.5)


def _span(values: Any) -> Any:
    import numpy as np

    low, high = min(0.0, *values), max(0.2, *values)
    margin = 0.15 * (high - low)
    return np.linspace(low - margin, high + margin, CELLS)


def _compared(axes: Any, found: Dynamics, activation: str) -> None:
    curves: dict[str, Mapping[str, Any]] = {activation: found.to_dict(), **(found.compare or {})}
    for (name, curve), colour in zip(curves.items(), COLOURS):
        escape = "" if curve["escape"] is None else f", escape {curve['escape']:.3g}"
        axes[0].plot(curve["time"], curve["test_risk"], color=colour, label=f"{name}{escape}")
        overlaps = curve["order_parameters"]
        cosine = [m / q**0.5 if q > 0 else 0.0 for m, q in zip(overlaps["m_k"], overlaps["q_k"])]
        axes[1].plot(curve["time"], cosine, color=colour, label=name)
    _plateau(axes[0], found)
    axes[0].set_ylabel("test risk")
    axes[1].set_ylabel(r"$m_k/\sqrt{q_k}$")
    axes[0].legend()
