"""The signatures of derived functions, read from the seam that the run-time declares (runtime/kernel.py)."""

from __future__ import annotations

import ast
from functools import cache
from importlib.resources import files

from replicode.codegen.ir import Argument, Signature


def declared(name: str, extended: bool = False) -> Signature:
    """The signature of a function of the seam; `extended` by its last argument, which not all systems have."""
    node = _functions()[name]
    places = [*node.args.args, *([node.args.vararg] if extended and node.args.vararg else [])]
    defaults = [None] * (len(node.args.args) - len(node.args.defaults)) + [ast.unparse(d) for d in node.args.defaults]
    defaults += [None] * (len(places) - len(defaults))
    arguments = tuple(
        Argument(a.arg, ast.unparse(a.annotation), d) for a, d in zip(places, defaults, strict=True) if a.annotation
    )
    returns = ast.unparse(node.returns) if node.returns else "None"
    return Signature(name, arguments, returns, ast.get_docstring(node) or "")


@cache
def _functions() -> dict[str, ast.FunctionDef]:
    text = files("replicode.codegen.runtime").joinpath("kernel.py").read_text(encoding="utf-8")
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
