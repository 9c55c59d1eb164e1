"""The C emitter: the kernels of a ModuleIR as compiled loops over samples, under the contract of the NumPy module.

The same IR as the NumPy emitter prints, tokens written out where they are few and looped over where they are many, with
two loops around it: the channel moments of the prox-free route, and Newton's method for the prox.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from importlib.resources import files

import sympy as sp
from sympy.printing.precedence import PRECEDENCE

from replicode.codegen.emit.printer import NumpyPrinter, identifier
from replicode.codegen.ir import Kernel, LengthIR, ModuleIR, Moment, Output, StraightLine
from replicode.codegen.lower.kernels import FACTORED, parameter_symbol
from replicode.codegen.rewrite.unrolled import UNROLLED_TOKENS, row_symbol, unrolled
from replicode.theory.calculus.tokens import Definition, OuterProducts
from replicode.theory.errors import InputError
from replicode.theory.language.functions import BY_NODE

EXPANSION = "expansion"
KERNELS = ("loss", "gradient", "hessian", EXPANSION, "curvatures")
NODE_KERNELS = (FACTORED["hessian"],)  # those that only the loops of Newton's method call


class CPrinter(NumpyPrinter):
    """C source; a token vector is printed as its entry `index`."""

    def __init__(self, vectors: Iterable[sp.Symbol] = (), index: str = "l") -> None:
        super().__init__()
        self.vectors, self.index = set(vectors), index

    def _print_Symbol(self, expr: sp.Symbol) -> str:
        name = identifier(expr.name)
        return f"{name}[{self.index}]" if expr in self.vectors else name

    def _print_Function(self, expr: sp.Expr) -> str:
        text = BY_NODE[type(expr)].c if type(expr) in BY_NODE else None
        if text is None:
            raise InputError(
                "backend", "fast", f"numpy for this activation: {type(expr).__name__} has no compiled form"
            )
        return text.format(self._print(expr.args[0]))

    _print_Abs = _print_ExpBase = _print_log = _print_Function

    def _print_Max(self, expr: sp.Expr) -> str:
        return str(reduce(lambda left, right: f"greater({left}, {right})", map(self._print, expr.args)))

    def _print_Min(self, expr: sp.Expr) -> str:
        return str(reduce(lambda left, right: f"smaller({left}, {right})", map(self._print, expr.args)))

    def _print_Pow(self, expr: sp.Pow, rational: bool = False) -> str:
        base, exponent = expr.as_base_exp() if not isinstance(expr, sp.exp) else (expr, sp.S.One)
        if exponent.could_extract_minus_sign():
            return str(self._print_Mul(sp.Mul(sp.S.One, expr, evaluate=False)))
        if exponent == sp.Rational(1, 2):
            return f"sqrt({self._print(base)})"
        if exponent.is_Integer and (base.is_Symbol or exponent == 2):
            text = self.parenthesize(base, PRECEDENCE["Pow"] + 1)
            return f"square({text})" if not base.is_Symbol else "*".join([text] * int(exponent))
        return f"pow({self._print(base)}, {self._print(exponent)})"

    def _print_Pi(self, _: sp.Expr) -> str:
        return "M_PI"

    def _print_Exp1(self, _: sp.Expr) -> str:
        return "M_E"


def c_module(ir: ModuleIR) -> str:
    """The C source of a system of one length, whose loss is smooth."""
    (length,) = ir.lengths
    kernels = {k.name: k for k in length.kernels}
    constants = {"TOKENS": length.tokens, "FIRST": length.first, "MOMENTS": len(ir.moments)}
    known = [*KERNELS, *(name for name in FACTORED.values() if name in kernels and name in NODE_KERNELS)]
    if FACTORED["hessian"] in known:
        constants["RANK"] = len(_matrix(kernels[FACTORED["hessian"]]).outers)
    defines = "\n".join(f"#define {name} {value}" for name, value in constants.items())
    nodes = [_node_function(length, kernels[name], ir.parameters) for name in known]
    loops = [_array_function(kernels[name]) for name in KERNELS if name != EXPANSION]
    runtime = files("replicode.codegen.runtime").joinpath("fast.c").read_text(encoding="utf-8")
    head, _, tail = runtime.partition("/* kernels */\n")
    moments = [] if ir.constants["LOCATION"] != "gaussian" else ir.moments
    return "\n\n".join([defines, head.strip(), *nodes, *loops, _moments(moments), tail.strip()]) + "\n"


def _matrix(kernel: Kernel) -> OuterProducts:
    (found,) = [o.value for o in kernel.outputs if isinstance(o.value, OuterProducts)]
    return found


def _arguments(kernel: Kernel) -> list[str]:
    inputs = [f"const double *restrict {s.name}" for s in kernel.token_inputs]
    inputs += [f"double {s.name}" for s in kernel.scalar_inputs]
    return [*inputs, "const double *restrict params", *(f"double *restrict out_{o.name}" for o in kernel.outputs)]


def _node_function(length: LengthIR, kernel: Kernel, parameters: Sequence[str]) -> str:
    """The kernel at one sample."""
    whole, tokens = kernel.name == EXPANSION, length.tokens
    used = set().union(*[e.free_symbols for e in kernel.expressions()])
    named = [parameter_symbol(p) for p in parameters]
    body = [f"const double {s.name} = params[{i}];" for i, s in enumerate(named) if s in used]
    if tokens <= UNROLLED_TOKENS:
        body += _straight(kernel, tokens, (length.expansion if whole else None) or unrolled(kernel, tokens))
    else:
        body += _looped(kernel, length.first if whole else 0)
    lines = "\n".join(f"    {line}" for line in body)
    return f"INLINE void {kernel.name}_at({', '.join(_arguments(kernel))})\n{{\n{lines}\n}}"


def _straight(kernel: Kernel, tokens: int, program: StraightLine) -> list[str]:
    """One assignment per token and statement."""
    printer = CPrinter()
    body = [
        f"const double {row_symbol(s, token).name} = {s.name}[{token}];"
        for s in kernel.token_inputs
        for token in range(tokens)
    ]
    known: set[sp.Symbol] = set()
    body += [f"{_declared(s, known)} = {printer.doprint(e)};" for s, e in program.assignments]
    for output in kernel.outputs:
        value = program.outputs[output.name]
        if not isinstance(value, tuple):
            body.append(f"*out_{output.name} = {printer.doprint(value)};")
            continue
        for i, row in enumerate(value):
            if not isinstance(row, tuple):
                body.append(f"out_{output.name}[{i}] = {printer.doprint(row)};")
                continue
            size = len(value)
            for j, entry in enumerate(row, size - len(row)):
                left = f"out_{output.name}[{i * size + j}] = "
                left += f"out_{output.name}[{j * size + i}] = " if output.symmetric and j > i else ""
                body.append(f"{left}{printer.doprint(entry)};")
    return body


def _looped(kernel: Kernel, first: int) -> list[str]:
    """One loop over the tokens per statement."""
    vectors, known = kernel.vectors(), set[sp.Symbol]()
    body = [_loop(kernel, s, _declared(s.symbol, known), CPrinter(vectors)) for s in kernel.statements]
    for output in kernel.outputs:
        body.append(_looped_output(kernel, output, vectors, first))
    return body


def _declared(symbol: sp.Symbol, known: set[sp.Symbol]) -> str:
    """A name as it stands left of an assignment: declared the first time, for a shift may be raised later."""
    first = symbol not in known
    known.add(symbol)
    return f"double {symbol.name}" if first else str(symbol.name)


def _loop(kernel: Kernel, statement: Definition, declared: str, printer: CPrinter) -> str:
    name, text = statement.symbol.name, printer.doprint(statement.expr)
    every = "for (int l = 0; l < TOKENS; l++)"
    if statement.kind == "token":
        return f"{declared}[TOKENS]; {every} {name}[l] = {text};"
    if statement.kind == "sum" and kernel.is_token(statement.expr):
        return f"{declared} = 0.0; {every} {name} += {text};"
    if statement.kind == "max":
        return f"{declared} = -INFINITY; {every} {name} = greater({name}, {text});"
    return f"{declared} = {f'TOKENS*({text})' if statement.kind == 'sum' else text};"


def _looped_output(kernel: Kernel, output: Output, vectors: set[sp.Symbol], first: int) -> str:
    left, right = CPrinter(vectors, "l"), CPrinter(vectors, "m")
    if isinstance(output.value, OuterProducts) and kernel.name in FACTORED.values():
        rows = [output.value.diagonal, *(pair[side] for side in (0, 1) for pair in output.value.outers)]
        entries = [f"out_{output.name}[{i}*TOKENS + l] = {left.doprint(row)};" for i, row in enumerate(rows)]
        return f"for (int l = 0; l < TOKENS; l++) {{ {' '.join(entries)} }}"
    if isinstance(output.value, OuterProducts):
        terms = [f"({left.doprint(a)})*({right.doprint(b)})" for a, b in output.value.outers]
        diagonal = f"(l == m ? {left.doprint(output.value.diagonal)} : 0.0)"
        entry = f"out_{output.name}[(l - {first})*(TOKENS - {first}) + m - {first}]"
        loops = f"for (int l = {first}; l < TOKENS; l++) for (int m = {first}; m < TOKENS; m++)"
        return f"{loops} {entry} = {' + '.join([*terms, diagonal])};"
    text = left.doprint(output.value)
    if not (kernel.is_token(output.value) or output.name in ("slope", "sigmas")):
        return f"*out_{output.name} = {text};"
    begin = first if output.name == "slope" else 0
    return f"for (int l = {begin}; l < TOKENS; l++) out_{output.name}[l - {begin}] = {text};"


def _size(kernel: Kernel, output: Output) -> str:
    if isinstance(output.value, OuterProducts):
        return "TOKENS*TOKENS"
    return "TOKENS" if kernel.is_token(output.value) or output.name in ("slope", "sigmas") else "1"


def _array_function(kernel: Kernel) -> str:
    """The kernel at n samples, entries of the same sample n apart."""
    inputs = [f"const double *restrict {s.name}" for s in kernel.token_inputs]
    inputs += ["const double *restrict y", "double V_v", "const double *restrict params"]
    outputs = [f"double *restrict {o.name}" for o in kernel.outputs]
    names = [f"at_{s.name}" for s in kernel.token_inputs]
    body = [f"double {n}[TOKENS];" for n in names]
    body += [f"double at_{o.name}[{_size(kernel, o)}];" for o in kernel.outputs]
    body += [f"for (int l = 0; l < TOKENS; l++) at_{s.name}[l] = {s.name}[l*n + i];" for s in kernel.token_inputs]
    body.append(
        f"{kernel.name}_at({', '.join([*names, 'y[i]', 'V_v', 'params', *(f'at_{o.name}' for o in kernel.outputs)])});"
    )
    body += [
        f"for (int k = 0; k < {_size(kernel, o)}; k++) {o.name}[k*n + i] = at_{o.name}[k];" for o in kernel.outputs
    ]
    lines = "\n".join(f"        {line}" for line in body)
    arguments = ", ".join(["long n", *inputs, *outputs])
    return f"void {kernel.name}({arguments})\n{{\n    for (long i = 0; i < n; i++) {{\n{lines}\n    }}\n}}"


def _moments(moments: Sequence[Moment]) -> str:
    """Adds one sample to the weighted moments of which the rates are made; not used where the location has a weight."""
    body = []
    for i, moment in enumerate(moments):
        text = "*".join(
            f.array if f.array == "y" else f"{f.array}[{'l' if moment.idle else 0}]" for f in moment.factors
        )
        loop = f"WRITTEN_OUT for (int l = 1; l < TOKENS; l++) e[{i}] += weight*{text};"
        body.append(loop if moment.idle else f"e[{i}] += weight*{text};")
    lines = "\n".join(f"    {line}" for line in body)
    fields = ["d_chi", "w_z", "g_chi", "g_z"]
    arguments = ", ".join(
        ["double weight", *(f"const double *restrict {f}" for f in fields), "double y", "double *restrict e"]
    )
    return f"INLINE void add_moments({arguments})\n{{\n{lines}\n}}"
