"""No order parameter is known by its place: vectors of them are read by names or by indices that the model defines."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEFINITION = "theory/model.py"
VECTORS = {"order", "conjugates", "rates", "order_parameters", "ORDER_PARAMETERS", "CONJUGATES"}
NAMED = VECTORS | {"overlaps"}  # whose order has names of its own at the levels of dynamics and population
SIZES = {6, 12}
SHAPED = {"zeros", "ones", "empty", "full", "eye", "range", "reshape"}
PLACES = {(0, 1, 3, 4), (0, 3), (1, 4), (2, 5), (3, 6)}
WAVES = "theory/gaussian/terms.py"  # the rates there are those of sines


def _name(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def _numbers(node):
    """The whole numbers that are written out in an expression, without those inside calls."""
    if isinstance(node, ast.Constant):
        return [node.value] if type(node.value) is int else []
    if isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.Subscript):
        return []
    return [n for child in ast.iter_child_nodes(node) for n in _numbers(child)]


def _placed(node):
    """What is wrong with a node, or None."""
    if isinstance(node, ast.Subscript) and _name(node.value) in NAMED:
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice  # times stand along the second
        if _numbers(first):
            return "a literal place"
    if isinstance(node, ast.Call) and _name(node.func) in SHAPED:
        numbers = [n for a in node.args for n in _numbers(a)]
        if set(numbers) & SIZES or numbers[-2:] == [2, 3]:
            return "a literal size"
    if isinstance(node, ast.Call) and _name(node.func) == "slice":
        return "literal places" if tuple(n for a in node.args for n in _numbers(a)) in PLACES else None
    if isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Load):
        numbers = [e.value for e in node.elts if isinstance(e, ast.Constant) and type(e.value) is int]
        if len(numbers) == len(node.elts) and tuple(numbers) in PLACES:
            return "literal places"
    if isinstance(node, ast.Assign) and _name(node.value) in VECTORS and isinstance(node.targets[0], ast.Tuple):
        return "taken apart by places"
    return None


def found_in(source):
    """Line numbers and reasons."""
    return [(node.lineno, why) for node in ast.walk(ast.parse(source)) if (why := _placed(node))]


@pytest.mark.parametrize("room", ["theory", "codegen", "validation", "replicode"])
def test_no_literal_places(room):
    paths = [p for p in sorted((ROOT / room).rglob("*.py")) if not p.is_symlink()]
    named = {p.relative_to(ROOT).as_posix(): p for p in paths}
    found = {
        f"{name}:{line}": why
        for name, path in named.items()
        if name not in (DEFINITION, WAVES)
        for line, why in found_in(path.read_text(encoding="utf-8"))
    }
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "order[2]",
        "last.order[5] + 1",
        "order[[0, 1, 3, 4]]",
        "last.conjugates[:2]",
        "m, q, v = order.reshape(2, 3).T",
        "np.zeros(6)",
        "np.zeros((6, 6))",
        "for i in range(6): pass",
        "mpmath.eye(12)",
        "for i in (0, 1, 3, 4): pass",
        "SCORE, VALUE = slice(0, 3), slice(3, 6)",
        "m_k, q_k, m_v, q_v = order",
        "order[3 * (i // 3) : 3 * (i // 3) + 3]",
        "ORDER_PARAMETERS[3]",
        "overlaps[1] - overlaps[0] ** 2",
    ],
)
def test_literal_places_are_seen(text):
    assert found_in(text)


@pytest.mark.parametrize("text", ["order[V_K]", "order[index('q_v')]", "np.zeros(order.size)", "x[2]", "order[block]"])
def test_named_places_are_not(text):
    assert found_in(text) == []
