"""Presentation of a derivation: one `Derivation` of a system at a level, as JSON, text, Markdown and LaTeX.

Steps and equations keep their expressions until they are written; long ones are shown with common parts abbreviated,
the JSON has them in full.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sympy as sp

from replicode.theory.chain.activation import SIGMA_SIGMA, SIGMA_W
from replicode.theory.chain.bayes import bayes_chain, bayes_equations
from replicode.theory.chain.dynamics import dynamics_chain
from replicode.theory.chain.steps import population_chain
from replicode.theory.derive.bayes import BayesSystem
from replicode.theory.derive.channel import N, U
from replicode.theory.derive.dynamics import DynamicsSystem
from replicode.theory.derive.optimum import excess_of
from replicode.theory.derive.population import PopulationSystem
from replicode.theory.derive.replica import Step
from replicode.theory.derive.rsb import StepSystem
from replicode.theory.derive.saddle import Reduction, SaddleSystem
from replicode.theory.derive.stability import StabilitySystem
from replicode.theory.language.functions import nodes_that
from replicode.theory.language.nodes import L, TokenSum, X
from replicode.theory.notation import is_plain, latex, meaning, parameter_symbols, tex, text
from replicode.theory.tokens import Definition

if TYPE_CHECKING:
    from replicode.codegen.lower import System

W_CHI = sp.Symbol("w_chi", real=True)
Abbreviations = list[tuple[sp.Symbol, sp.Expr]]
_SHORT = 40
_LONG = 110
_ROW = 260
_TRIVIAL = 2
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Jacobian:
    """diag(diagonal) + sum of outer products over the tokens, with the definitions that they use."""

    diagonal: sp.Expr
    outers: tuple[tuple[sp.Expr, sp.Expr], ...]
    where: tuple[Definition, ...]


@dataclass(frozen=True)
class Derivation:
    """What is shown of a system at one level."""

    level: str
    activation: str | None
    parameters: tuple[str, ...]
    task: str
    tokens: int | str | None
    free_energy: sp.Expr
    equations: Mapping[str, sp.Expr]
    reductions: tuple[Reduction, ...]
    steps: tuple[Step, ...]
    prox: sp.Expr | None = None
    jacobian: Jacobian | None = None
    inverse_map: sp.Expr | None = None

    @property
    def subject(self) -> str:
        """Whose theory it is."""
        return self.activation or "any estimator"

    @cached_property
    def shown_steps(self) -> list[tuple[Step, Abbreviations, sp.Expr, sp.Expr]]:
        """Each step with its sides abbreviated."""
        return [(s, *_sides(s)) for s in self.steps]

    def _repr_markdown_(self) -> str:
        return as_markdown(self)


def derivation(system: System | StabilitySystem) -> Derivation:
    """The derivation of a system, whatever its level."""
    of = system.system if isinstance(system, StabilitySystem | StepSystem) else system
    act = None if isinstance(of, BayesSystem) else of.activation
    return Derivation(
        activation=None if act is None else act.text,
        parameters=() if act is None else act.parameters,
        task=of.task.text,
        tokens=None if of.lengths is None else of.lengths.fixed or str(of.lengths),
        reductions=() if isinstance(of, BayesSystem) else of.reductions,
        **_of_level(system),
    )


def _of_level(system: System | StabilitySystem) -> dict[str, Any]:
    """What the levels show: potential, equations, and the steps to them."""
    match system:
        case SaddleSystem():
            derived = {f"{name}_derivative_form": e for name, e in system.derivative_equations().items()}
            found = {"level": "rs", "free_energy": system.free_energy, "equations": system.equations() | derived}
            return found | {"steps": system.steps} | (_prox(system) if system.model.has_scores else {})
        case StabilitySystem():
            blocks = system.system.model.blocks
            entries = [f"T_{a.name}{b.name}" for a in blocks for b in blocks]
            equations = dict(zip(entries, system.matrix, strict=True)) | {"replicon": system.replicon}
            found = {"level": "stability", "free_energy": system.system.free_energy, "equations": equations}
            return found | {"steps": system.steps}
        case StepSystem():
            found = {"level": "1rsb", "free_energy": system.free_energy, "equations": system.equations()}
            return found | {"steps": system.steps}
        case BayesSystem():
            found = {"level": "bayes", "free_energy": system.free_entropy, "equations": bayes_equations(system)}
            return found | {"steps": bayes_chain(system)}
        case DynamicsSystem():
            found = {"level": "dynamics", "free_energy": system.risk, "equations": system.equations()}
            return found | {"steps": dynamics_chain(system)}
    return _population(system)


def _prox(system: SaddleSystem) -> dict[str, Any]:
    """Stationarity of the prox, its inverse map and the Jacobian of that."""
    inverse = inverse_map(system)
    return {"prox": inverse - W_CHI, "jacobian": prox_jacobian(system), "inverse_map": inverse}


def _population(system: PopulationSystem) -> dict[str, Any]:
    """The risk with infinite data, and what it is made of."""
    risk, closed = system.risk, {"A": system.averages.A, "B": system.averages.B}
    equations = {
        "risk": risk.on_manifold,
        "excess_risk": excess_of(risk.on_manifold, system.model),
        **{name: expr for name, expr in closed.items() if expr is not None},
        "hidden_score_mean": risk.score_mean,
        "hidden_score_variance": risk.score_variance,
        "risk_integrand_hidden": risk.hidden,
        "risk_integrand_idle": risk.idle,
        "bias_idle": risk.bias,
    }
    found = {"level": "population", "free_energy": risk.on_manifold, "equations": equations}
    return found | {"steps": population_chain(system)}


def inverse_map(system: SaddleSystem) -> sp.Expr:
    """w_chi = chi + V_k grad loss at one token, all sums written out as TokenSum."""
    expr = X + system.model.scores.V * system.loss.gradient_x
    for definition in reversed((*system.loss.value_definitions, *system.loss.gradient_definitions)):
        body = TokenSum(definition.expr) if definition.kind == "sum" else definition.expr
        expr = expr.xreplace({definition.symbol: body})
    return expr.xreplace({L: system.length})


def prox_jacobian(system: SaddleSystem) -> Jacobian:
    """I + V_k Hessian of the loss away from kinks, diagonal plus outer products for any number of tokens."""
    loss, v, block = system.loss, system.model.scores.V, system.loss.hessian_xx
    names = {U: SIGMA_W, N: SIGMA_SIGMA, L: system.length}

    def shown(expr: sp.Expr) -> sp.Expr:
        return expr.replace(sp.DiracDelta, lambda *_: sp.S.Zero).xreplace(names)

    defined = (*loss.value_definitions, *loss.gradient_definitions, *loss.hessian_definitions)
    needed = set().union(block.diagonal.free_symbols, *(e.free_symbols for pair in block.outers for e in pair))
    where = []
    for definition in reversed(defined):
        if definition.symbol in needed:
            needed |= definition.expr.free_symbols
            symbol = names.get(definition.symbol, definition.symbol)
            where.append(Definition(symbol, definition.kind, shown(definition.expr)))
    outers = tuple((v * shown(left), shown(right)) for left, right in block.outers)
    return Jacobian(1 + v * shown(block.diagonal), outers, tuple(reversed(where)))


def as_json(found: Derivation) -> dict[str, Any]:
    """The JSON object of `derive`; expressions are in SymPy syntax, those of the steps without functions of our own."""
    shown: dict[str, Any] = {
        "level": found.level,
        "activation": found.activation,
        "task": found.task,
        "tokens": found.tokens,
        "free_energy": str(found.free_energy),
        "equations": {name: str(e) for name, e in found.equations.items()},
        "prox": None if found.prox is None else str(found.prox),
        "prox_jacobian": None if found.jacobian is None else _jacobian_json(found.jacobian),
        "inverse_map": None if found.inverse_map is None else str(found.inverse_map),
        "reductions": [{"name": r.name, "statement": r.statement} for r in found.reductions],
        "parts": [{"title": title, "first": first} for title, first in _parts(found.steps)],
        "steps": [{"rule": s.rule, "lhs": text(s.lhs), "rhs": text(s.rhs)} for s in found.steps],
    }
    return {"symbols": symbols_of(shown, found.parameters), **shown}


def _jacobian_json(jacobian: Jacobian) -> dict[str, Any]:
    return {
        "diagonal": str(jacobian.diagonal),
        "outer": [[str(left), str(right)] for left, right in jacobian.outers],
        "where": [{"name": d.symbol.name, "kind": d.kind, "expression": str(d.expr)} for d in jacobian.where],
    }


def _parts(steps: Iterable[Step]) -> list[tuple[str, int]]:
    """The headings with the number of their first step."""
    firsts: dict[str, int] = {}
    for number, step in enumerate(steps, 1):
        firsts.setdefault(step.part, number)
    return list(firsts.items())


def symbols_of(shown: Mapping[str, Any], parameters: Iterable[str]) -> dict[str, str]:
    """What every name in the expressions means: of the notation, of the activation, or SymPy's own, left out."""
    renamed = {new.name: old.name for old, new in parameter_symbols(parameters).items()}
    own = {p: "parameter of the activation" for p in parameters}
    own |= {new: f"parameter {old} of the activation, under another name in the steps" for new, old in renamed.items()}
    names = {n for written in _written(shown) for n in _NAME.findall(written)}
    found: dict[str, str] = {}
    for name in sorted(names):
        explained = own.get(name) or meaning(name)
        if explained:
            found[name] = explained
        elif is_plain(name) and name not in _FUNCTIONS:
            raise AssertionError(f"{name} has no entry in the notation")
    return found


_FUNCTIONS = tuple(node.__name__ for node in nodes_that(lambda f: f.own))


def _written(shown: Mapping[str, Any]) -> list[str]:
    """Every expression of the JSON object, as text."""
    jacobian = shown["prox_jacobian"]
    written = [shown["free_energy"], *shown["equations"].values(), shown["prox"] or "", shown["inverse_map"] or ""]
    written += [name for name in shown["equations"] if meaning(name)]
    written += [s[side] for s in shown["steps"] for side in ("lhs", "rhs")]
    if jacobian:
        written += [jacobian["diagonal"], *(e for pair in jacobian["outer"] for e in pair)]
        written += [f"{d['name']} {d['expression']}" for d in jacobian["where"]]
    return written


def _sides(step: Step) -> tuple[Abbreviations, sp.Expr, sp.Expr]:
    short, (lhs, rhs) = abbreviated(step.lhs, step.rhs)
    return short, lhs, rhs


def abbreviated(*sides: sp.Expr) -> tuple[Abbreviations, list[sp.Expr]]:
    """Abbreviations and the expressions in terms of them; short expressions are left alone.

    Sums over tokens and derivatives bind their variables, so they are named (T_i, F_i) before common parts (P_i) are.
    """
    size = sum(sp.count_ops(e) for e in sides)
    if size <= _SHORT or any(e.has(sp.Integral) for e in sides):
        return [], list(sides)
    sums, summed = _without_sums(list(sides)) if size > _LONG else ([], list(sides))
    functions: dict[sp.Expr, sp.Symbol] = {}
    rates: dict[sp.Expr, sp.Symbol] = {}
    for rate in sorted(set().union(*(e.atoms(sp.Derivative) for e in summed)), key=sp.default_sort_key):
        function = functions.setdefault(rate.expr, sp.Symbol(f"F_{len(functions) + 1}", real=True))
        variables = ", ".join(v.name for v in rate.variables)
        rates[rate] = sp.Symbol(f"diff({function.name}, {variables})", real=True)
    opaque = [e.xreplace(rates) for e in summed]
    parts, reduced = _common([*functions, *opaque]) if size > _LONG else ([], [*functions, *opaque])
    named = list(zip(functions.values(), reduced))
    return [*sums, *parts, *named], reduced[len(named) :]


def _without_sums(exprs: list[sp.Expr]) -> tuple[Abbreviations, list[sp.Expr]]:
    """Token sums by symbols, innermost first."""
    named: Abbreviations = []
    while nodes := set().union(*(e.atoms(TokenSum) for e in exprs)):
        innermost = sorted((n for n in nodes if not n.args[0].has(TokenSum)), key=sp.default_sort_key)
        symbols = {n: sp.Symbol(f"T_{len(named) + i + 1}", real=True) for i, n in enumerate(innermost)}
        named += [(symbol, node) for node, symbol in symbols.items()]
        exprs = [e.xreplace(symbols) for e in exprs]
    return named, exprs


def _common(exprs: list[sp.Expr]) -> tuple[Abbreviations, list[sp.Expr]]:
    """Common parts worth a name, numbered in order."""
    found, reduced = sp.cse(exprs, symbols=sp.numbered_symbols("common", cls=sp.Dummy, real=True))
    names: dict[sp.Symbol, sp.Expr] = {}
    kept: Abbreviations = []
    for dummy, e in found:
        part = e.xreplace(names)
        worth = sp.count_ops(part) > _TRIVIAL
        names[dummy] = sp.Symbol(f"P_{len(kept) + 1}", real=True) if worth else part
        if worth:
            kept.append((names[dummy], part))
    return kept, [e.xreplace(names) for e in reduced]


def as_text(found: Derivation) -> str:
    """The derivation as numbered lines of SymPy syntax."""
    lines = [f"{found.subject}, task {found.task}, {_token_words(found)}, level {found.level}", ""]
    lines += [_POTENTIAL[found.level][0], "", f"    {found.free_energy}", "", "Equations", ""]
    lines += [f"    {name} = {e}" for name, e in found.equations.items()]
    if found.jacobian:
        lines += ["", "Prox: stationarity in the score x of a token, zero at", "", f"    {found.prox}"]
        lines += ["", "Inverse map of the prox", "", f"    w_chi = {found.inverse_map}"]
        lines += ["", "Jacobian of the inverse map: diagonal, then outer products token i x token j", ""]
        lines += [f"    diagonal  {found.jacobian.diagonal}"]
        lines += [f"    outer     ({left}) x ({right})" for left, right in found.jacobian.outers]
        lines += [f"    where     {d.symbol} = {_definition(d, str)}" for d in found.jacobian.where]
    lines += ["", "Reductions", "", *[f"    {r.name}: {r.statement}" for r in found.reductions]]
    parts = {first: title for title, first in _parts(found.steps)}
    for number, (step, short, lhs, rhs) in enumerate(found.shown_steps, 1):
        if number in parts:
            lines += ["", parts[number], ""]
        lines += [f"{number:>3}. {step.rule}", f"       {text(lhs)}", f"     = {text(rhs)}"]
        lines += [f"       {s} = {text(e)}" for s, e in short]
    return "\n".join(lines)


_POTENTIAL = {
    "rs": ("Free energy", "f"),
    "stability": ("Free energy", "f"),
    "1rsb": ("Free energy", "f"),
    "population": ("Risk", r"{\rm risk}"),
    "bayes": ("Free entropy", r"\Phi"),
    "dynamics": ("Risk given the scores", r"{\rm risk}"),
}


def _token_words(found: Derivation) -> str:
    return "any number of tokens" if found.tokens is None else f"{found.tokens} tokens"


def _definition(definition: Definition, shown: Callable[[sp.Expr], str]) -> str:
    return shown(TokenSum(definition.expr) if definition.kind == "sum" else definition.expr)


@dataclass(frozen=True)
class _Page:
    """How a document is marked up."""

    heading: Callable[[str], str]
    words: Callable[[str], str]
    display: Callable[[str], str]
    item: Callable[[int, str], str]
    label: Callable[[str], str]


def _body(found: Derivation, page: _Page) -> list[str]:
    """Free energy, equations, prox, reductions and the numbered chain, in LaTeX mathematics."""
    title, energy = _POTENTIAL[found.level]
    lines = [page.heading(title)]
    lines += [page.display(_equation(energy, found.free_energy)), page.heading("Equations")]
    for name, e in found.equations.items():
        lines += [page.label(name), page.display(_equation(_left(name), e))]
    lines += _prox_lines(found, page) if found.jacobian else []
    lines += [page.heading("Reductions")]
    lines += [page.words(f"{r.name}: {r.statement}") for r in found.reductions]
    parts = {first: title for title, first in _parts(found.steps)}
    for number, (step, short, lhs, rhs) in enumerate(found.shown_steps, 1):
        lines += [page.heading(parts[number])] if number in parts else []
        lines += [page.item(number, step.rule), page.display(_equation(latex(lhs), rhs))]
        lines += [page.words("where"), *_definitions(short, page)] if short else []
    return lines


def _equation(left: str, right: sp.Expr) -> str:
    """left = right, the terms of a long right side over several rows."""
    if len(left) + len(latex(right)) <= _ROW:
        return f"{left} = {latex(right)}"
    rows: list[str] = []
    for term in right.as_ordered_terms():
        shown = latex(term)
        sign = "" if shown.startswith("-") else "+ "
        if rows and len(rows[-1]) + len(shown) <= _ROW:
            rows[-1] += f" {sign}{shown}"
        else:
            rows.append(f"{sign}{shown}" if rows else shown)
    indented = r" \\ & \quad ".join(rows)
    return rf"\begin{{aligned}} & {left} \\ & = {indented} \end{{aligned}}"


def _definitions(short: Abbreviations, page: _Page) -> list[str]:
    """Abbreviations, several to a line while they are short."""
    lines: list[str] = []
    row = ""
    for symbol, e in short:
        entry = _equation(latex(symbol), e)
        if row and len(row) + len(entry) > 200:
            lines.append(page.display(row))
            row = ""
        row = rf"{row},\quad {entry}" if row else entry
    return [*lines, page.display(row)]


def _prox_lines(found: Derivation, page: _Page) -> list[str]:
    jacobian = found.jacobian
    if jacobian is None or found.prox is None or found.inverse_map is None:
        return []
    short, (inverse,) = abbreviated(found.inverse_map)
    outers = [rf"\left({latex(a)}\right)_i \left({latex(b)}\right)_j" for a, b in jacobian.outers]
    lines = [
        page.heading("Prox"),
        page.words("the score x at the prox solves this stationarity; read from right to left, the inverse map:"),
        page.display(_equation(latex(W_CHI), inverse)),
        *([page.words("where"), *_definitions(short, page)] if short else []),
        page.words("Jacobian of the inverse map, diagonal plus outer products over the tokens i and j:"),
        page.display(rf"J_{{ij}} = \delta_{{ij}} \left({latex(jacobian.diagonal)}\right)_i"),
        *[page.display(rf"\qquad + {outer}") for outer in outers],
    ]
    where = [(d.symbol, TokenSum(d.expr) if d.kind == "sum" else d.expr) for d in jacobian.where]
    return [*lines, *([page.words("where"), *_definitions(where, page)] if where else [])]


def _left(name: str) -> str:
    """The left side of a named equation."""
    stem = name.removesuffix("_derivative_form")
    return tex(stem) if meaning(stem) else r"\text{" + name.replace("_", " ") + "}"


def as_markdown(found: Derivation) -> str:
    """The derivation in Markdown with LaTeX mathematics, as notebooks render it."""
    page = _Page(
        heading=lambda title: f"## {title}",
        words=_markdown,
        display=lambda mathematics: f"$$\n{mathematics}\n$$",
        item=lambda number, rule: f"**{number}.** {_markdown(rule)}",
        label=lambda name: f"`{name}`",
    )
    title = f"# `{found.subject}`, task `{found.task}`, {_token_words(found)}, level {found.level}"
    return "\n\n".join([title, *_body(found, page)]) + "\n"


def _markdown(words: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|^])", r"\\\1", words)


def as_latex(found: Derivation) -> str:
    """A LaTeX document of the derivation; every display shrinks to the width of the line."""
    page = _Page(
        heading=lambda title: rf"\subsection*{{{_escaped(title)}}}",
        words=lambda words: rf"\par\noindent {_escaped(words)}",
        display=lambda mathematics: rf"\[\adjustbox{{max width=\linewidth}}{{$\displaystyle {mathematics}$}}\]",
        item=lambda number, rule: rf"\par\medskip\noindent\textbf{{{number}.}} {_escaped(rule)}",
        label=lambda name: r"\par\noindent derivative form:" if name.endswith("_derivative_form") else "",
    )
    subject = [found.subject, f"task {found.task}", f"{_token_words(found)}, level {found.level}"]
    return "\n".join(
        [
            r"\documentclass{article}",
            r"\usepackage[margin=2cm]{geometry}",
            r"\usepackage{amsmath,amssymb,adjustbox}",
            r"\begin{document}",
            r"\section*{Replica theory}",
            *[rf"\par\noindent\adjustbox{{max width=\linewidth}}{{\texttt{{{_escaped(s)}}}}}" for s in subject],
            *_body(found, page),
            r"\end{document}",
            "",
        ]
    )


_SPECIAL = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"$\sim$"}
_SPECIAL |= {c: rf"\{c}" for c in "_&%#${}"} | {c: f"${c}$" for c in "<>|"}


def _escaped(words: str) -> str:
    return r"$\to$".join("".join(_SPECIAL.get(c, c) for c in part) for part in words.split("->"))
