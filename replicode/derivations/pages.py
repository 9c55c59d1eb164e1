"""The three pages of a derivation: plain text, Markdown and LaTeX.

Each begins with the model, then has the potential, the equations, the prox and the reductions: the result. With `steps`
the Jacobian of the prox and the numbered chain follow. `_body` says what comes in which order; a `_Page` how it is
marked up.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy as sp

from replicode.derivations.fitting import ROW, Equation, fitted
from replicode.derivations.short import abbreviated
from replicode.derivations.statement import Line, Math, statement
from replicode.theory.language.nodes import TokenSum
from replicode.theory.typeset.arranged import arranged
from replicode.theory.typeset.notation import latex, latex_rows, meaning, plain, spoken, tex
from replicode.theory.typeset.printers import at_token, width

if TYPE_CHECKING:
    from replicode.derivations.present import Derivation
    from replicode.theory.calculus.tokens import Definition

_FORM = "_derivative_form"
_EQUATION = 150
POTENTIAL = {
    "rs": ("Free energy", "f", "f"),
    "stability": ("Free energy", "f", "f"),
    "1rsb": ("Free energy", "f", "f"),
    "population": ("Risk", "risk", r"\mathcal{R}"),
    "bayes": ("Free entropy", "Phi", r"\Phi"),
    "dynamics": ("Risk given the scores", "risk", r"\mathcal{R}"),
}
TITLES = {
    "rs": "Replica-symmetric theory",
    "stability": "Stability of replica symmetry",
    "1rsb": "One step of replica symmetry breaking",
    "population": "Infinite data",
    "bayes": "Bayes-optimal theory",
    "dynamics": "One-pass SGD in high dimension",
}


@dataclass(frozen=True)
class _Page:
    """How a page is marked up."""

    heading: Callable[[str], str]
    line: Callable[[Line], str]
    equations: Callable[[list[Equation]], str]
    item: Callable[[int, str], str]


def _body(found: Derivation, page: _Page, steps: bool) -> list[str]:
    title, name, _ = POTENTIAL.get(found.level, ("Potential", "f", "f"))
    lines = [page.heading("The model"), *map(page.line, statement(found))]
    lines += [page.heading(title), *_display([Equation(name, found.free_energy)], page)]
    lines += _groups(found, page)
    lines += _channel(found, page)
    if found.reductions:
        lines += [page.heading("Reductions")]
        lines += [page.line((f"{r.name[0].upper()}{r.name[1:]}: {r.statement}.",)) for r in found.reductions]
    return [*lines, *_jacobian(found, page), *_chain(found, page)] if steps else lines


def _groups(found: Derivation, page: _Page) -> list[str]:
    """The equations by their kind, the derivative forms last."""
    forms = {n.removesuffix(_FORM): e for n, e in found.equations.items() if n.endswith(_FORM)}
    said = POTENTIAL.get(found.level, ("", "", ""))[1]
    own = {n: e for n, e in found.equations.items() if not n.endswith(_FORM) and n != said}
    lines = [page.heading("Equations"), *_display([Equation(n, e) for n, e in own.items()], page)]
    forms = {n: e for n, e in forms.items() if e != own.get(n)}
    if forms:
        lines += [page.line(("The same with derivatives of G, right only while the prox does not jump:",))]
        lines += _display([Equation(n, e) for n, e in forms.items()], page)
    return lines


def _display(equations: list[Equation], page: _Page) -> list[str]:
    """Equations, long ones with what they abbreviate behind them."""
    lines: list[str] = []
    row: list[Equation] = []
    for equation in equations:
        right = arranged(equation.right)
        if sp.count_ops(right) <= _EQUATION:
            row.append(Equation(equation.left, right))
            continue
        short, (right,) = abbreviated(right, short=0, long=0)
        lines += [page.equations(row)] if row else []
        lines += [page.equations([Equation(equation.left, right)]), *_where(short, page)]
        row = []
    return [*lines, page.equations(row)] if row else lines


def _where(short: Iterable[tuple[sp.Symbol, sp.Expr]], page: _Page) -> list[str]:
    found = [Equation(symbol, e) for symbol, e in short]
    return [page.line(("where",)), page.equations(found)] if found else []


def _defined(definitions: Iterable[Definition]) -> list[tuple[sp.Expr, sp.Expr]]:
    """Definitions as equations; a token vector has the index of its token."""
    shown = []
    for d in definitions:
        expr = TokenSum(d.expr) if d.kind == "sum" else d.expr
        shown.append((d.symbol, at_token(expr, "i") if d.kind == "token" else expr))
    return shown


def _channel(found: Derivation, page: _Page) -> list[str]:
    """M with the values eliminated, and the inverse map of the prox."""
    if found.channel is None:
        return []
    spring = Math("|x - w_chi|^2/(2 V_k)", r"\frac{|x - w^{\chi}|^2}{2 V_k}")
    loss = Math(plain(found.channel.envelope), latex(found.channel.envelope))
    return [
        page.heading("Prox"),
        page.line(("With the values eliminated, M is the minimum over the scores x of ", spring, " + ", loss,
                   ", where ",
                   Math("(sigma.w_z) and (sigma.sigma)", r"(\sigma\!\cdot\!w)$ and $(\sigma\!\cdot\!\sigma)"),
                   " are sums over the tokens.")),
        page.line(("The minimum is stationary: the field of token i whose prox is x is",)),
        page.equations([Equation(sp.Symbol("w_chi_i", real=True), at_token(arranged(found.channel.inverse), "i"))]),
        *_where(_defined(found.channel.where), page),
    ]  # fmt: skip


def _jacobian(found: Derivation, page: _Page) -> list[str]:
    jacobian = found.jacobian
    if jacobian is None:
        return []
    delta = sp.Symbol("delta_ij", real=True)
    total = delta * at_token(arranged(jacobian.diagonal), "i")
    outers = [at_token(arranged(a), "i") * _named(at_token(arranged(b), "j")) for a, b in jacobian.outers]
    return [
        page.heading("Jacobian of the inverse map"),
        page.line(("Diagonal plus outer products over the tokens i and j:",)),
        page.equations([Equation(sp.Symbol("J_ij", real=True), sp.Add(total, *outers))]),
        *_where(_defined(jacobian.where), page),
    ]


def _named(vector: sp.Expr) -> sp.Expr:
    """A token vector with the index of its token."""
    return sp.Symbol(f"{vector.name}_j", real=True) if vector.is_Symbol else vector


def _chain(found: Derivation, page: _Page) -> list[str]:
    """The numbered steps; where both sides look the same, one of them is shown."""
    parts = {first: title for title, first in found.parts}
    lines: list[str] = []
    for number, (step, short, lhs, rhs) in enumerate(found.shown_steps, 1):
        lines += [page.heading(parts[number])] if number in parts else []
        same = plain(lhs) == plain(rhs)
        lines += [page.item(number, step.rule), page.equations([Equation("" if same else lhs, rhs)])]
        lines += _where(short, page)
    return lines


def _tokens(found: Derivation) -> str:
    return "any number of tokens" if found.tokens is None else f"{found.tokens} token{'s' * (found.tokens != 1)}"


def _title(found: Derivation) -> str:
    return f"{TITLES.get(found.level, found.level)}: {found.subject}, task {found.task_name}, {_tokens(found)}"


def as_text(found: Derivation, steps: bool = False) -> str:
    """The derivation as plain text."""
    page = _Page(
        heading=lambda title: f"\n{title}\n",
        line=lambda line: textwrap.fill(_words(line), 118, break_on_hyphens=False, subsequent_indent="  "),
        equations=lambda found: "\n".join(["", *map(_text_equation, found), ""]),
        item=lambda number, rule: textwrap.fill(f"{number:>3}. {rule}", 118, subsequent_indent="     "),
    )
    more = (
        [] if steps else ["", f"--steps adds the {len(found.steps)} steps that lead here, --format json has them all."]
    )
    text = "\n".join([_title(found), *_body(found, page, steps), *more])
    return re.sub(r"\n{3,}", "\n\n", text)


def _words(line: Line) -> str:
    return "".join(part.plain if isinstance(part, Math) else part for part in line)


def _text_equation(equation: Equation) -> str:
    left = spoken(equation.left) if isinstance(equation.left, str) else plain(equation.left)
    right = plain(equation.right)
    if not left:
        return f"    {right}"
    return f"    {left}\n      = {right}" if len(left) > 40 else f"    {left} = {right}"


def as_markdown(found: Derivation, steps: bool = False) -> str:
    """The derivation in Markdown with LaTeX mathematics, as notebooks render it."""
    page = _Page(
        heading=lambda title: f"## {title}",
        line=lambda line: _mathematics(line, _markdown),
        equations=lambda found: f"$$\n{_aligned(found, 'aligned')}\n$$",
        item=lambda number, rule: f"**{number}.** {_markdown(rule)}",
    )
    title = f"# {TITLES.get(found.level, found.level)}: `{found.subject}`, task `{found.task_name}`, {_tokens(found)}"
    return "\n\n".join([title, *_body(found, page, steps)]) + "\n"


def _mathematics(line: Line, words: Callable[[str], str]) -> str:
    """A line with its mathematics between dollars; neighbouring formulas become one."""
    text = "".join(f"${p.tex}$" if isinstance(p, Math) else words(p) for p in line if not isinstance(p, Math) or p.tex)
    return text.replace(" $$", " ").replace("$$", " ")


def _markdown(words: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|^])", r"\\\1", words)


def _left(equation: Equation) -> str:
    """The left side in LaTeX."""
    if isinstance(equation.left, sp.Expr):
        return latex(equation.left)
    potentials = {name: shown for _, name, shown in POTENTIAL.values()}
    name = equation.left.removesuffix(_FORM)
    if not name or name in potentials:
        return potentials.get(name, "")
    rate = re.fullmatch(r"(spherical_)?d_(.+)", name)
    if rate and meaning(rate.group(2)):
        return rf"\frac{{d {tex(rate.group(2))}}}{{dt}}" + (r"\Big|_{\rm sphere}" if rate.group(1) else "")
    return tex(name) if meaning(name) else r"\text{" + name.replace("_", " ") + "}"


def _aligned(equations: list[Equation], environment: str) -> str:
    """Equations aligned at their signs, long ones over several lines."""
    lines: list[str] = []
    for equation in fitted(equations):
        left = _left(equation)
        rows = latex_rows(equation.right, width(left) + 2, ROW)
        sign = "= " if left else ""
        if width(left) > ROW // 3 and isinstance(equation.left, sp.Expr):
            rows = latex_rows(equation.right, 0, ROW)
            lines += [f"& {row}" for row in latex_rows(equation.left, 0, ROW)]
            left = ""
        lines.append(f"{left} & {sign}{rows[0]}")
        lines += [rf"& \quad {row}" for row in rows[1:]]
    body = " \\\\\n".join(lines)
    return f"\\begin{{{environment}}}\n{body}\n\\end{{{environment}}}"


def as_latex(found: Derivation, steps: bool = False) -> str:
    """A LaTeX document of the derivation."""
    head = [
        r"\documentclass{article}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\usepackage{amsmath,amssymb}",
        r"\allowdisplaybreaks",
        r"\begin{document}",
        rf"\section*{{{TITLES.get(found.level, found.level)}}}",
        rf"{{\sloppy\noindent \texttt{{{_escaped(found.subject)}}}, task \texttt{{{_escaped(found.task_name)}}}, "
        rf"{_tokens(found)}.\par}}",
    ]
    return "\n".join([*head, *_body(found, _LATEX, steps), r"\end{document}", ""])


def as_latex_fragment(found: Derivation, steps: bool = False) -> str:
    """What stands between \\begin{document} and \\end{document}: to paste into a paper that loads amsmath, amssymb."""
    return "\n".join([f"% {_title(found)}", "% needs amsmath and amssymb", *_body(found, _LATEX, steps), ""])


def _latex_equations(found: list[Equation]) -> str:
    return _aligned(found, "align*")


_LATEX = _Page(
    heading=lambda title: rf"\subsection*{{{_escaped(title)}}}",
    line=lambda line: rf"{{\sloppy\noindent {_mathematics(line, _escaped)}\par}}",
    equations=_latex_equations,
    item=lambda number, rule: rf"{{\sloppy\medskip\noindent\textbf{{{number}.}} {_escaped(rule)}\par}}",
)
_SPECIAL: Mapping[str, str] = {
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"$\sim$"},
    **{c: rf"\{c}" for c in "_&%#${}"},
    **{c: f"${c}$" for c in "<>|"},
}


def _escaped(words: str) -> str:
    return r"$\to$".join("".join(_SPECIAL.get(c, c) for c in part) for part in words.split("->"))
