"""The signatures of derived functions and the types of constants, read from the seams that the run-time declares."""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files

from replicode.codegen.ir import Argument, Signature
from replicode.codegen.link import SEAM


def declared(name: str, *more: str) -> Signature:
    """The signature of a function of the seam; `more` are the last arguments, which not all systems have."""
    node = _declarations()[name]
    assert isinstance(node, ast.FunctionDef)
    kind = node.args.vararg.annotation if node.args.vararg else None
    defaults = [None] * (len(node.args.args) - len(node.args.defaults)) + [ast.unparse(d) for d in node.args.defaults]
    arguments = tuple(
        Argument(a.arg, ast.unparse(a.annotation), d)
        for a, d in zip(node.args.args, defaults, strict=True)
        if a.annotation
    )
    arguments += tuple(Argument(name, ast.unparse(kind)) for name in more if kind)
    returns = ast.unparse(node.returns) if node.returns else "None"
    return Signature(name, arguments, returns, ast.get_docstring(node) or "")


def declared_type(name: str) -> str | None:
    """The type that the seam gives a constant, if it gives one."""
    node = _declarations().get(name)
    return ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else None


@cache
def _declarations() -> dict[str, ast.stmt]:
    paths = [p for p in files("replicode.codegen.runtime").iterdir() if p.name.endswith(f"{SEAM}.py")]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    found: dict[str, ast.stmt] = {}
    for node in (node for text in texts for node in ast.parse(text).body):
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found
