"""Kernels with the tokens written out: straight-line programs over scalars, for the few tokens where that is fastest.

`unrolled` turns a `Kernel` into a `StraightLine` program in which every token vector has become one symbol per token;
copies are propagated and what no output needs is dropped. The emitters print it one assignment per line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import sympy as sp

from replicode.codegen.ir import Assigned, Entries, Kernel, Output, StraightLine
from replicode.theory.calculus.tokens import Definition, OuterProducts

UNROLLED_TOKENS = 4
LARGEST_LEAD = 700  # of an exponent over another's: exp of it is finite, and the other's share below rounding


def row_symbol(symbol: sp.Symbol, token: int) -> sp.Symbol:
    """The symbol of one token's entry of a token vector."""
    return sp.Symbol(f"{symbol.name}_{token}", **symbol.assumptions0)


def flattened(value: Entries) -> list[sp.Expr]:
    """All expressions in an output."""
    return [e for part in value for e in flattened(part)] if isinstance(value, tuple) else [value]


class Lines:
    """Assignments being written: numbers and names are copied on, signs taken on to where a name is used."""

    def __init__(self, assignments: Iterable[Assigned] = ()) -> None:
        self.assignments = list(assignments)
        self.copies: dict[sp.Symbol, sp.Expr] = {}

    def known(self, expr: sp.Expr) -> sp.Expr:
        """The expression with all copies in place."""
        return expr.xreplace(self.copies)

    def copy(self, symbol: sp.Symbol, expr: sp.Expr) -> None:
        """Have the symbol replaced by the expression from here on."""
        self.copies[symbol] = self.known(expr)

    def assign(self, symbol: sp.Symbol, expr: sp.Expr) -> None:
        """Write symbol = expr."""
        expr = self.known(expr)
        negative = expr.is_Mul and expr.could_extract_minus_sign()
        size = -expr if negative else expr
        self.copies.pop(symbol, None)
        if expr.is_Number or size.is_Symbol:
            self.copies[symbol] = expr
        elif negative:
            opposite = sp.Symbol(f"minus_{symbol.name}", real=True)
            self.assignments.append((opposite, size))
            self.copies[symbol] = -opposite
        else:
            self.assignments.append((symbol, size))

    def program(self, outputs: Mapping[str, Entries]) -> StraightLine:
        """What the outputs need, common parts named."""
        settled = {name: _mapped(self.known, value) for name, value in outputs.items()}
        kept, reduced = _shared(_needed(self.assignments, settled), settled)
        return StraightLine(_inverted(kept), reduced)


def _shared(
    assignments: tuple[Assigned, ...], outputs: Mapping[str, Entries]
) -> tuple[tuple[Assigned, ...], Mapping[str, Entries]]:
    """Common subexpressions that writing out the tokens has brought about, each before its first use."""
    symbols = [s for s, _ in assignments]
    if len(set(symbols)) < len(symbols):
        return assignments, outputs
    whole = [*(e for _, e in assignments), *(e for value in outputs.values() for e in flattened(value))]
    found, reduced = sp.cse(whole, symbols=sp.numbered_symbols("s_", real=True), order="canonical")
    signs = {s: e for s, e in found if (-e).is_Symbol}  # what is a sign is no operation shared
    entries = iter(e.xreplace(signs) for e in reduced)
    body = [(s, next(entries)) for s in symbols]
    settled = {name: _mapped(lambda _: next(entries), value) for name, value in outputs.items()}
    return _ordered([*body, *((s, e.xreplace(signs)) for s, e in found if s not in signs)]), settled


def _ordered(assignments: list[Assigned]) -> tuple[Assigned, ...]:
    """Each after all that it uses."""
    waiting = dict(assignments)
    found: list[Assigned] = []

    def place(symbol: sp.Symbol) -> None:
        expr = waiting.pop(symbol)
        for other in sorted(expr.free_symbols & waiting.keys(), key=lambda s: s.name):
            if other in waiting:
                place(other)
        found.append((symbol, expr))

    for symbol, _ in assignments:
        if symbol in waiting:
            place(symbol)
    return tuple(found)


def _mapped(function: Callable[[sp.Expr], sp.Expr], value: Entries) -> Entries:
    return tuple(_mapped(function, part) for part in value) if isinstance(value, tuple) else function(value)


def unrolled(kernel: Kernel, tokens: int, first: int = 0) -> StraightLine:
    """The kernel at so many tokens; slopes and curvatures from token `first` on, other outputs at all tokens."""
    vectors = sorted(kernel.vectors(), key=lambda s: s.name)
    rows = [{s: row_symbol(s, token) for s in vectors} for token in range(tokens)]
    lines = Lines()

    def at(expr: sp.Expr, token: int) -> sp.Expr:
        return lines.known(expr.xreplace(rows[token]))

    shift = _free_shift(kernel) if tokens == 2 else None
    for statement in kernel.statements:
        if statement.kind == "token":
            for token in range(tokens):
                expr = at(statement.expr, token)
                capped = shift in statement.expr.free_symbols and expr != 1
                expr = sp.exp(sp.Min(expr.args[0], LARGEST_LEAD)) if capped else expr
                lines.assign(rows[token][statement.symbol], expr)
        elif statement.symbol == shift:
            lines.copy(statement.symbol, at(statement.expr, 0))
        else:
            lines.assign(statement.symbol, _reduced(statement, [at(statement.expr, t) for t in range(tokens)]))
    outputs = {o.name: _entries(o, at, tokens, first) for o in kernel.outputs}
    return lines.program(
        {name: value if name in _TOKENWISE else _plain(kernel, value, name) for name, value in outputs.items()}
    )


def _free_shift(kernel: Kernel) -> sp.Symbol | None:
    """The shift of exponentials that are divided by their own sum before anything else; it may be any number.

    Of two tokens, that of the first is as good as the larger: one exponential is 1 and the other is capped.
    """
    shifts = [s.symbol for s in kernel.statements if s.kind == "max"]
    powers = [s for s in kernel.statements if shifts and shifts[0] in s.expr.free_symbols]
    if len(shifts) != 1 or [s.kind for s in powers] != ["token"] or any(s.symbol == shifts[0] for s in powers):
        return None
    (power,) = powers
    total = next((s.symbol for s in kernel.statements if s.kind == "sum" and s.expr == power.symbol), None)
    if total is None or power.expr.func != sp.exp or sp.diff(power.expr.args[0], shifts[0]) != -1:
        return None
    others = [e for e in kernel.expressions() if e.free_symbols & {power.symbol, total}]
    normalised = [e for e in others if e in (power.symbol, power.symbol / total)]
    return shifts[0] if len(others) == len(normalised) == 2 else None


def _inverted(assignments: tuple[Assigned, ...]) -> tuple[Assigned, ...]:
    """A name that is divided by more than once is inverted once."""
    divided = [p for _, e in assignments for p in e.atoms(sp.Pow) if p.base.is_Symbol and p.exp == -1]
    inverses = {p: sp.Symbol(f"inverse_{p.base.name}", real=True) for p in divided if divided.count(p) > 1}
    found: list[Assigned] = []
    for symbol, expr in assignments:
        found.append((symbol, expr.xreplace(inverses)))
        found += [(inverse, p) for p, inverse in inverses.items() if p.base == symbol]
    return tuple(found)


_TOKENWISE = ("slope", "sigmas")


def _plain(kernel: Kernel, value: Entries, name: str) -> Entries:
    """An output that does not differ from token to token is one expression."""
    output = next(o for o in kernel.outputs if o.name == name)
    if isinstance(output.value, OuterProducts) or kernel.is_token(output.value):
        return value
    return value[0] if isinstance(value, tuple) else value


def _reduced(statement: Definition, entries: list[sp.Expr]) -> sp.Expr:
    if statement.kind == "sum":
        return sp.Add(*entries)
    return sp.Max(*entries) if statement.kind == "max" else entries[0]


def _entries(output: Output, at: Callable[[sp.Expr, int], sp.Expr], tokens: int, first: int) -> Entries:
    if not isinstance(output.value, OuterProducts):
        begin = first if output.name == "slope" else 0
        return tuple(at(output.value, token) for token in range(begin, tokens))
    matrix = output.value
    return tuple(
        tuple(
            sp.Add(
                *(at(a, i) * at(b, j) for a, b in matrix.outers),
                at(matrix.diagonal, i) if i == j else sp.S.Zero,
            )
            for j in range(first, tokens)
            if j >= i or not output.symmetric
        )
        for i in range(first, tokens)
    )


def _needed(assignments: list[Assigned], outputs: Mapping[str, Entries]) -> tuple[Assigned, ...]:
    """The assignments that some output depends on."""
    wanted = set().union(*[e.free_symbols for value in outputs.values() for e in flattened(value)])
    kept = []
    for symbol, expr in reversed(assignments):
        if symbol in wanted:
            kept.append((symbol, expr))
            wanted |= expr.free_symbols
    return tuple(reversed(kept))
