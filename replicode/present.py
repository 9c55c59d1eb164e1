"""Presentation of a derived system: JSON, text, Markdown and LaTeX of the same numbered chain."""

from __future__ import annotations

from typing import Any

import sympy as sp

from theory.model import V
from theory.nodes import L, TokenSum, X
from theory.population import PopulationRisk, population_risk
from theory.saddle import SaddleSystem

MEANINGS = {
    "m_k": "overlap k.k*/D",
    "q_k": "overlap k.k/D",
    "V_k": "beta (diagonal - off-diagonal) of the k overlaps",
    "m_v": "overlap v.v*/D",
    "q_v": "overlap v.v/D",
    "V_v": "beta (diagonal - off-diagonal) of the v overlaps",
    "alpha": "samples per dimension N/D",
    "nu": "signal strength",
    "noise": "standard deviation of the label noise",
    "L": "number of tokens",
    "EM": "average of the Moreau envelope M",
    "E": "average over the fields of one sequence",
    "TokenSum": "sum over the tokens, with x and w bound",
    "x": "score of a token at the prox",
    "w": "value field w_z of a token",
    "y": "label",
}


def derivation(system: SaddleSystem, level: str) -> dict[str, Any]:
    """The JSON object of `derive`; expressions are in SymPy syntax."""
    if level == "population":
        return _population(system, population_risk(system.task))
    inverse = inverse_map(system)
    return {
        "level": level,
        "activation": system.activation.text,
        "task": system.task.text,
        "tokens": system.tokens,
        "symbols": MEANINGS,
        "free_energy": str(system.free_energy),
        "equations": {name: str(expr) for name, expr in system.equations().items()},
        "prox": str(inverse - sp.Symbol("w_chi", real=True)),
        "inverse_map": str(inverse),
        "reductions": [{"name": r.name, "statement": r.statement} for r in system.reductions],
        "steps": [{"rule": s.rule, "lhs": str(s.lhs), "rhs": str(s.rhs)} for s in system.steps],
    }


def inverse_map(system: SaddleSystem) -> sp.Expr:
    """w_chi = chi + V_k grad loss at one token, all sums written out as TokenSum."""
    expr = X + V["k"] * system.loss.gradient_x
    for definition in reversed((*system.loss.value_definitions, *system.loss.gradient_definitions)):
        body = TokenSum(definition.expr) if definition.kind == "sum" else definition.expr
        expr = expr.xreplace({definition.symbol: body})
    return expr if system.tokens is None else expr.xreplace({L: sp.Integer(system.tokens)})


def _population(system: SaddleSystem, risk: PopulationRisk) -> dict[str, Any]:
    return {
        "level": "population",
        "activation": system.activation.text,
        "task": system.task.text,
        "tokens": system.tokens,
        "symbols": MEANINGS | {"A": "E[sigma_eps]", "B": "E[sum_l sigma_l^2]"},
        "free_energy": str(risk.on_manifold),
        "equations": {
            "risk": str(risk.on_manifold),
            "hidden_score_mean": str(risk.score_mean),
            "hidden_score_variance": str(risk.score_variance),
            "risk_integrand_hidden": str(risk.hidden),
            "risk_integrand_idle": str(risk.idle),
            "bias_idle": str(risk.bias),
        },
        "prox": None,
        "inverse_map": None,
        "reductions": [{"name": r.name, "statement": r.statement} for r in system.reductions],
        "steps": [],
    }


def as_text(found: dict[str, Any], markdown: bool = False) -> str:
    """The derivation as numbered lines."""
    code = "`" if markdown else ""
    head = "## " if markdown else ""
    lines = [
        f"{'# ' if markdown else ''}{found['activation']}, task {found['task']}, level {found['level']}",
        "",
    ]
    lines += [f"{head}Free energy", "", f"{code}{found['free_energy']}{code}", "", f"{head}Equations", ""]
    lines += [f"- {code}{name} = {expr}{code}" for name, expr in found["equations"].items()]
    if found["inverse_map"]:
        lines += ["", f"{head}Inverse map of the prox", "", f"{code}w_chi = {found['inverse_map']}{code}"]
    lines += ["", f"{head}Reductions", ""] + [f"- {r['name']}: {r['statement']}" for r in found["reductions"]]
    lines += ["", f"{head}Steps", ""]
    for number, step in enumerate(found["steps"], 1):
        lines += [
            f"{number}. {step['rule']}",
            f"   {code}{step['lhs']}{code}",
            f"   = {code}{step['rhs']}{code}",
        ]
    return "\n".join(lines)


def as_latex(system: SaddleSystem) -> str:
    """A LaTeX document of the derivation; every equation is in a box that shrinks to the line."""
    body = [_equation("f", system.free_energy)]
    body += [_equation(_name(name), expr) for name, expr in system.equations().items()]
    steps = [rf"\item {_escaped(s.rule)} {_display(sp.Eq(s.lhs, s.rhs, evaluate=False))}" for s in system.steps]
    return "\n".join(
        [
            r"\documentclass{article}",
            r"\usepackage{amsmath,adjustbox}",
            r"\begin{document}",
            rf"\section*{{Replica theory of \texttt{{{_escaped(system.activation.text)}}}}}",
            r"\subsection*{Free energy and saddle-point equations}",
            *body,
            r"\subsection*{Derivation}",
            r"\begin{enumerate}",
            *steps,
            r"\end{enumerate}",
            r"\end{document}",
        ]
    )


def _name(name: str) -> str:
    return str(sp.latex(sp.Symbol(name.replace("_derivative_form", "_deriv"))))


def _equation(left: str, expr: sp.Expr) -> str:
    return rf"\[\adjustbox{{max width=\linewidth}}{{$\displaystyle {left} = {sp.latex(expr)}$}}\]"


def _display(expr: sp.Basic) -> str:
    return rf"\[\adjustbox{{max width=\linewidth}}{{$\displaystyle {sp.latex(expr)}$}}\]"


def _escaped(text: str) -> str:
    special = {"_": r"\_", "^": r"\^{}", "&": r"\&", "%": r"\%", "#": r"\#", "->": r"$\to$"}
    for plain, escaped in special.items():
        text = text.replace(plain, escaped)
    return text
