"""Equations as MathML: LaTeX of the derived expressions, converted, with the same in words that can be read aloud.

Long right-hand sides are broken between their terms, one row each: browsers do not break MathML by themselves.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from replicode.extras import needed

ROW = 240
WIDE = 130
_ROMAN = re.compile(r"\{\\rm ([^{}]*)\}")
_LOG = re.compile(r"\\log(?= [A-Z]|\\bar)")
_OPENING = re.compile(r"<math[^>]*>")
_SPOKEN = (
    (re.compile(r"\b([mqV])h(\d?)_"), r"\1-hat\2_"),
    (re.compile(r"\*\*"), "^"),
    (re.compile(r"\bE\("), "average("),
)


@dataclass(frozen=True)
class Equation:
    """A name, both sides in LaTeX, the right one in rows, and the whole as plain text."""

    name: str
    left: str
    rows: tuple[str, ...]
    text: str

    @property
    def wide(self) -> bool:
        """Whether it needs a line of its own."""
        return len(self.rows) > 1 or len(self.left) + len(self.rows[0]) > WIDE

    @property
    def mathml(self) -> str:
        """The equation as a block of MathML with a text alternative."""
        if len(self.rows) == 1:
            body = _inside(f"{self.left} = {self.rows[0]}")
        else:
            first = f"<mtr><mtd>{_inside(self.left)}</mtd><mtd>{_inside('= ' + self.rows[0])}</mtd></mtr>"
            others = (f"<mtr><mtd></mtd><mtd>{_inside(row)}</mtd></mtr>" for row in self.rows[1:])
            body = f'<mtable class="rows" displaystyle="true">{first}{"".join(others)}</mtable>'
        alternative = html.escape(_spoken(self.text))
        return f'<math display="block" alttext="{alternative}">{body}</math>'

    def to_dict(self) -> dict[str, Any]:
        """As data that JSON holds."""
        return {"name": self.name, "left": self.left, "rows": list(self.rows), "text": self.text}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Equation:
        """From what `to_dict` gave."""
        return cls(found["name"], found["left"], tuple(found["rows"]), found["text"])


def equation(name: str, left: str, right: Any) -> Equation:
    """The equation of an expression, its right side in rows."""
    return Equation(name, left, tuple(_rows(right)), f"{name} = {right}")


def named_equations(equations: Mapping[str, Any]) -> list[Equation]:
    """Equations of the notation: every name typeset as the notation has it."""
    return [equation(name, left_side(name), right) for name, right in equations.items()]


def left_side(name: str) -> str:
    """The left side of a named equation, in LaTeX."""
    from replicode.theory.typeset.notation import meaning, tex

    return tex(name) if meaning(name) else rf"\text{{{name.replace('_', ' ')}}}"


def inline(latex: str, text: str) -> str:
    """A formula within a sentence."""
    return f'<math alttext="{html.escape(text)}">{_inside(latex)}</math>'


def _rows(right: Any) -> Iterable[str]:
    from replicode.theory.typeset.arranged import arranged, ordered_terms
    from replicode.theory.typeset.notation import latex

    right = arranged(right)
    whole = latex(right)
    if len(whole) <= ROW or not right.is_Add:
        return [whole]
    rows: list[str] = []
    for term in ordered_terms(right):
        shown = latex(term)
        signed = shown if shown.startswith("-") or not rows else f"{{}} + {shown}"
        if rows and len(rows[-1]) + len(signed) <= ROW:
            rows[-1] += f" {signed}"
        else:
            rows.append(signed)
    return rows


def _inside(latex: str) -> str:
    """The converted formula without its outer tag; thin negative spaces and roman words as MathML has them."""
    converter = needed("latex2mathml.converter", "report")
    plain = _LOG.sub(r"\\log\\,", _ROMAN.sub(r"\\text{\1}", latex.replace(r"\!", " ")))
    found = _OPENING.sub("", converter.convert(plain), count=1)
    return str(found).removesuffix("</math>")


def _spoken(text: str) -> str:
    for pattern, words in _SPOKEN:
        text = pattern.sub(words, text)
    return text
