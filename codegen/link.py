"""The linker: derived definitions and the run-time parts that they need, as the sections of one module.

Parts are the files of runtime/, ordinary modules; the names of those that a level takes are disjoint. What the emitter
supplies stands in the place of runtime/kernel.py and of a level's own seam beside it; at every other seam, a name that
a part assigns a default to, the system's choice is put.
`linked` takes the closure of what the entry points reach, one top-level definition at a time: nothing is defined twice,
nothing unreachable is kept, and a name that is not defined anywhere is an error.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

SEAM = "kernel"  # parts whose names end so declare what is derived
CHOICES = "choices"
MAIN = "__main__"
DOCSTRING = re.compile(r'""".*?"""', re.DOTALL)
BEGINS = re.compile(r"^(?=[^\W\d]|@)", re.MULTILINE)
NAMED = re.compile(r"(?:def|class) (\w+)")
COMMENTS_AFTER = re.compile(r"(?:\n|^#.*)*\Z", re.MULTILINE)


@dataclass(frozen=True)
class Definition:
    """A top-level statement: the names it defines, and its source."""

    names: tuple[str, ...]
    text: str

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names of the module that it uses."""
        return frozenset(_used(symtable.symtable(self.text, "<part>", "exec")))

    @property
    def assigns(self) -> bool:
        """Whether it is an assignment, which stands next to others."""
        return not self.text.startswith(("def ", "class ", "@", "if "))


@dataclass(frozen=True)
class Part:
    """A file of the run-time: its subject, what it imports by name, and its definitions in order."""

    name: str
    subject: str
    imports: Mapping[str, str]
    definitions: tuple[Definition, ...]


@dataclass(frozen=True)
class Linked:
    """A module's imports, and its definitions by section."""

    imports: tuple[str, ...]
    sections: Mapping[str, tuple[Definition, ...]]


def defined(text: str) -> Definition:
    """A definition by its source."""
    named = NAMED.match(text)
    return Definition((named[1],) if named else _targets(ast.parse(text).body[0]), text)


def _used(table: symtable.SymbolTable) -> set[str]:
    """Names that code looks up outside of its own functions and classes."""
    outer = table.get_type() == "module"
    names = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (outer or s.is_global())}
    return names.union(*[_used(child) for child in table.get_children()])


def parts_text(parts: Sequence[str]) -> str:
    """The source of these parts of the run-time."""
    return "\0".join(_text(name) for name in parts)


def _text(name: str) -> str:
    return files("replicode.codegen.runtime").joinpath(f"{name}.py").read_text(encoding="utf-8")


@cache
def part(name: str) -> Part:
    """A file of the run-time, taken apart."""
    docstring, *statements = top_level(_text(name))
    imports: dict[str, str] = {}
    definitions = []
    for text in statements:
        if text.startswith(("import ", "from ")):
            imports |= _imported(ast.parse(text).body[0])
        else:
            definitions.append(defined(text))
    subject = (ast.get_docstring(ast.parse(docstring)) or name).split("\n\n")[0]
    return Part(name, subject, imports, tuple(definitions))


def top_level(text: str) -> Iterator[str]:
    """The docstring of a formatted file and its statements, each with its decorators and without comments between.

    They are told apart by the lines that begin in the first column: parsing all parts takes longer than linking them.
    """
    header = DOCSTRING.match(text)
    assert header is not None
    yield header[0]
    decorators = ""
    for lines in BEGINS.split(text[header.end() :])[1:]:
        decorators += lines
        if not lines.startswith("@"):
            yield COMMENTS_AFTER.sub("", decorators).rstrip("\n")
            decorators = ""


def _imported(node: ast.stmt) -> dict[str, str]:
    """The names that an import from outside the project binds, each with a line of its own."""
    if isinstance(node, ast.Import):
        return {a.asname or a.name: ast.unparse(ast.Import([a])) for a in node.names}
    assert isinstance(node, ast.ImportFrom)
    if node.module == "__future__" or (node.module or "").startswith("replicode."):
        return {}
    return {a.asname or a.name: ast.unparse(ast.ImportFrom(node.module, [a], 0)) for a in node.names}


def _targets(node: ast.stmt) -> tuple[str, ...]:
    """The names that a statement defines; a script's last lines have one of their own."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return (node.name,)
        case ast.AnnAssign(target=ast.Name(id=name)):
            return (name,)
        case ast.Assign():
            return tuple(n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name))
        case ast.If():
            return (MAIN,)
    raise SyntaxError(f"{ast.unparse(node)}: a run-time part has definitions and assignments only")


def chosen(definition: Definition, value: str) -> Definition:
    """The definition of a seam with another value."""
    (node,) = ast.parse(definition.text).body
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    node.value = ast.parse(value, mode="eval").body
    return defined(ast.unparse(node))


def linked(
    parts: Sequence[str], derived: Sequence[Definition], choices: Mapping[str, str], entries: Iterable[str]
) -> Linked:
    """All that the entry points reach; the derived definitions come first and replace those of the seams."""
    supplied = {name for d in derived for name in d.names}
    sections = {name: [d for d in part(name).definitions if not supplied & {*d.names}] for name in parts}
    seams = [d for name, found in sections.items() if name.endswith(SEAM) for d in found]
    stubs = {name for d in seams for name in d.names if d.text.startswith("def ")}
    sections[parts[0]] += derived
    defaults = _by_name(sections.values())
    sections = {n: [d for d in found if not choices.keys() & {*d.names}] for n, found in sections.items()}
    sections[CHOICES] = [chosen(defaults[name], value) for name, value in choices.items()]
    known = _by_name(sections.values())
    imports = {name: line for p in parts for name, line in part(p).imports.items()}
    reached, outside = _closure(entries, known, imports)
    if missing := sorted(reached & stubs):
        raise NameError(f"the system does not supply {missing}")
    kept = {name: tuple(d for d in found if reached & {*d.names}) for name, found in sections.items()}
    lines = tuple(sorted({imports[name] for name in outside}))
    return Linked(lines, {name: found for name, found in kept.items() if found})


def _by_name(sections: Iterable[Sequence[Definition]]) -> dict[str, Definition]:
    """All definitions; a name that two of them have is an error."""
    known: dict[str, Definition] = {}
    for d in (d for found in sections for d in found):
        if taken := known.keys() & {*d.names}:
            raise NameError(f"{sorted(taken)} are defined twice")
        known |= dict.fromkeys(d.names, d)
    return known


def _closure(
    entries: Iterable[str], known: Mapping[str, Definition], imports: Mapping[str, str]
) -> tuple[set[str], set[str]]:
    """The names that are reached, those of the module and those that are imported."""
    reached: set[str] = set()
    outside: set[str] = set()
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name in known and name not in reached:
            reached.add(name)
            waiting += known[name].uses
        elif name in imports:
            outside.add(name)
        elif name not in known and not hasattr(builtins, name):
            raise NameError(f"{name} is used but not defined")
    return reached, outside
