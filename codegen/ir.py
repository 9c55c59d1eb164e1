"""The typed intermediate representation handed from lowering to the emitters.

A `ModuleIR` holds all that is derived of one system: the kernels of every length, and the functions of order
parameters, fields and overlaps, each with its typed inputs, its equations and its outputs. A `Kernel` is a
straight-line program over per-sample values of two shapes: scalars (one number per sample) and token vectors (L numbers
per sample). Statements are in order of evaluation; a statement of kind `sum` or `max` reduces a token expression to a
scalar. To emit a function one needs its IR and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import sympy as sp

from replicode.theory.calculus.tokens import Definition, OuterProducts

IR_VERSION = 2


@dataclass(frozen=True)
class Output:
    """A named result: a scalar, a token vector, or a matrix, `symmetric` or not, as diagonal plus outer products."""

    name: str
    value: sp.Expr | OuterProducts
    symmetric: bool = False

    def expressions(self) -> tuple[sp.Expr, ...]:
        """All expressions in it, in a fixed order."""
        if isinstance(self.value, OuterProducts):
            return (self.value.diagonal, *(e for pair in self.value.outers for e in pair))
        return (self.value,)


@dataclass(frozen=True)
class Kernel:
    """name(inputs) -> outputs; `token_inputs` are the token-vector ones."""

    name: str
    doc: str
    token_inputs: tuple[sp.Symbol, ...]
    scalar_inputs: tuple[sp.Symbol, ...]
    statements: tuple[Definition, ...]
    outputs: tuple[Output, ...]

    def operations(self) -> int:
        """Number of arithmetic operations, token operations counted once."""
        return int(sum(sp.count_ops(e) for e in self.expressions()))

    def expressions(self) -> list[sp.Expr]:
        """Right-hand sides of all statements, then of the outputs."""
        return [s.expr for s in self.statements] + [e for o in self.outputs for e in o.expressions()]

    def vectors(self) -> set[sp.Symbol]:
        """The symbols that stand for token vectors."""
        return set(self.token_inputs) | {s.symbol for s in self.statements if s.kind == "token"}

    def is_token(self, expr: sp.Expr) -> bool:
        """Whether the expression is a token vector."""
        return bool(expr.free_symbols & self.vectors())


def rebuilt(output: Output, expressions: Iterable[sp.Expr]) -> Output:
    """The same output with its expressions replaced, in the order of `expressions()`."""
    items = list(expressions)
    if isinstance(output.value, OuterProducts):
        pairs = tuple(zip(items[1::2], items[2::2], strict=True))
        return replace(output, value=OuterProducts(items[0], pairs))
    return replace(output, value=items[0])


Assigned: TypeAlias = tuple[sp.Symbol, sp.Expr]
Entries: TypeAlias = Any  # an expression, one per token, or rows of expressions; SymPy's are untyped


@dataclass(frozen=True)
class StraightLine:
    """Assignments in order, and by name each output: an expression, one per token, or rows of a matrix."""

    assignments: tuple[Assigned, ...]
    outputs: Mapping[str, Entries]


@dataclass(frozen=True)
class LengthIR:
    """The kernels of sequences of one length, which `share` of all have; `expansion` also with its tokens written out.

    `first` is the token from which on `expansion` has slopes and curvatures: that of the token before is known from the
    others where the scores' sum does not matter. `suffix` tells its functions from those of other lengths.
    """

    tokens: int
    share: float
    suffix: str
    first: int
    kernels: tuple[Kernel, ...]
    expansion: StraightLine | None
    row_sum: Function


@dataclass(frozen=True)
class Argument:
    """An input of a function with its type in the emitted module."""

    name: str
    type: str
    default: str | None = None


@dataclass(frozen=True)
class Signature:
    """What a function takes and returns, as the run-time calls it."""

    name: str
    arguments: tuple[Argument, ...]
    returns: str
    doc: str


@dataclass(frozen=True)
class Unpacked:
    """The entries of a vector by name."""

    source: str
    symbols: tuple[sp.Symbol, ...]


@dataclass(frozen=True)
class Split:
    """The rows of an array by name: that of the hidden token, if it has one, and those of the idle ones."""

    source: str
    hidden: sp.Symbol | None
    idle: sp.Symbol


@dataclass(frozen=True)
class Entry:
    """An entry of a matrix."""

    source: str
    row: int
    column: int


@dataclass(frozen=True)
class OverTokens:
    """hidden + sum over the idle tokens of idle; where weights are given, summed with them over all samples."""

    hidden: sp.Expr
    idle: sp.Expr
    weights: str | None = None


@dataclass(frozen=True)
class TokenRows:
    """One row per token, of the shape of `like`: that of the hidden one first."""

    like: str
    hidden: sp.Expr
    idle: sp.Expr


@dataclass(frozen=True)
class Factor:
    """A field in a product: its array, and whether it is that of the idle tokens."""

    array: str
    idle: bool


@dataclass(frozen=True)
class Moment:
    """The weighted sum of a product of fields over all samples, and over the idle tokens if they are idle."""

    factors: tuple[Factor, ...]

    @property
    def idle(self) -> bool:
        """Whether it is summed over the idle tokens."""
        return any(f.idle for f in self.factors)


Value: TypeAlias = sp.Expr | Entry | OverTokens | TokenRows | Moment


@dataclass(frozen=True)
class Assignment:
    """target := value, with the equation it stands for where that says more; a target may be an entry of a matrix."""

    target: sp.Symbol | tuple[Entry, ...]
    value: Value
    note: str = ""


@dataclass(frozen=True)
class Vector:
    """An array of expressions; `notes` say what each of them is."""

    entries: tuple[sp.Expr, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Matrix:
    """A matrix of expressions by rows; `notes` say what each row is."""

    rows: tuple[tuple[sp.Expr, ...], ...]
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(matrix: sp.ImmutableMatrix, notes: tuple[str, ...] = ()) -> Matrix:
        """That of SymPy."""
        return Matrix(tuple(tuple(matrix.row(i)) for i in range(matrix.rows)), notes)


Returned: TypeAlias = sp.Expr | Vector | Matrix | tuple[Any, ...] | None


@dataclass(frozen=True)
class Function:
    """A derived function: how its arguments are named, its equations in order, and what it returns.

    `shaped_like` names an argument whose shape the result has even where no equation depends on it.
    """

    signature: Signature
    names: tuple[Unpacked | Split, ...]
    assignments: tuple[Assignment, ...]
    returned: Returned
    shaped_like: str | None = None
    zeros: tuple[str, int] | None = None

    @property
    def name(self) -> str:
        """Its name in the module."""
        return self.signature.name


@dataclass(frozen=True)
class Level:
    """What the modules of a level are made of: parts of the run-time, in order, and the names that they are used by.

    Of these `inner` are not public. `legend` says what its symbols mean, `derived` what its derived functions have in
    common.
    """

    parts: tuple[str, ...]
    public: tuple[str, ...]
    inner: tuple[str, ...]
    legend: str
    derived: str

    @property
    def entries(self) -> tuple[str, ...]:
        """All of these names."""
        return (*self.public, *self.inner)


@dataclass(frozen=True)
class Provenance:
    """What a module says of itself: a title, what it was made for, and its equations under their headings."""

    title: str
    about: Mapping[str, str]
    signature: str
    operations: Mapping[str, int]
    equations: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class ModuleIR:
    """Everything that is emitted for one system of a level.

    `constants` are its flags and tables by name, `choices` say which part of the run-time stands at each of its seams.
    """

    level: Level
    provenance: Provenance
    parameters: tuple[str, ...]
    constants: Mapping[str, Any]
    lengths: tuple[LengthIR, ...]
    moments: tuple[Moment, ...]
    functions: tuple[Function, ...]
    choices: Mapping[str, str]
