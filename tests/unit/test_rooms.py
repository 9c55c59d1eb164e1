"""Every room says what each of its files is for."""

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
