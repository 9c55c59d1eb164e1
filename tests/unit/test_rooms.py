"""Every room says what each of its files is for, and imports none that stands above it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONE_A_VERB = {"commands", "verbs"}
ROOMS = sorted(
    p.parent.relative_to(ROOT)
    for top in ("theory", "codegen", "validation", "replicode")
    for p in (ROOT / top).rglob("__init__.py")
    if not any(folder.is_symlink() for folder in p.parents) and p.parent.name not in ONE_A_VERB
)


def unnamed(room):
    """The files and rooms of a room that its docstring does not name."""
    says = set(re.findall(r"`([\w.]+?)/?`", ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""))
    files = {p.stem for p in room.glob("*.py") if not p.stem.startswith("__")}
    rooms = {p.parent.name for p in room.glob("*/__init__.py") if not p.parent.is_symlink()}
    return (files | rooms) - says


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_a_room_names_what_it_holds(room):
    assert unnamed(ROOT / room) == set()


def test_an_unnamed_file_is_found(tmp_path):
    (tmp_path / "__init__.py").write_text('"""Has `a`."""')
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").touch()
    assert unnamed(tmp_path) == {"b"}


ABOVE = {"theory": {"codegen", "validation"}, "codegen": {"validation"}, "validation": set()}


def imported(source):
    """The rooms that a text imports from; what is none of the three is the front door."""
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    names += [f"{n.module}.{a.name}" for n in nodes if isinstance(n, ast.ImportFrom) and n.module for a in n.names]
    ours = [name.split(".")[1] for name in names if name.startswith("replicode.")]
    return {name if name in ABOVE else "front door" for name in ours}


@pytest.mark.parametrize("room", ABOVE)
def test_no_import_goes_upward(room):
    forbidden = ABOVE[room] | {"front door"}
    found = {str(p): imported(p.read_text()) & forbidden for p in (ROOT / room).rglob("*.py")}
    assert {p: rooms for p, rooms in found.items() if rooms} == {}


def test_an_import_upward_is_found():
    assert imported("def f():\n    from replicode.codegen import ir\n    import replicode.cache") == {
        "codegen",
        "front door",
    }
    assert imported("from replicode import modules\nimport os") == {"front door"}
