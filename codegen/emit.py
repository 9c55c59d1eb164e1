"""The NumPy emitter: one standalone, readable file from a SaddleSystem.

The file holds, in this order: provenance, the derived equations as functions (each with its equation beside it), and
the run-time source. Nothing in it depends on the activation's name, on the time, or on this project being installed.
"""

from __future__ import annotations

import ast
import hashlib
import pprint
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import sympy as sp

from replicode.codegen.ir import IR_VERSION, Kernel, Output
from replicode.codegen.loading import load_source
from replicode.codegen.lower import KernelIR, lower, parameter_symbol
from replicode.codegen.pair import expansion_program
from replicode.codegen.printer import numpy_source
from replicode.codegen.unrolled import UNROLLED_TOKENS, StraightLine, Value, flattened, row_symbol, unrolled
from replicode.codegen.writing import write
from replicode.theory.budget import budget
from replicode.theory.curvature import Curvature, derivable, derive_curvature, second_rate_symbol
from replicode.theory.errors import InputError, Refusal
from replicode.theory.gaussian import FieldLaw
from replicode.theory.kinks import kink_points
from replicode.theory.location import Location
from replicode.theory.model import (
    ALPHA,
    BLOCKS,
    CHI_STAR,
    CONJUGATES,
    LAMBDAS,
    NOISE,
    NU,
    ORDER_PARAMETERS,
    Model,
    Y,
)
from replicode.theory.nodes import L, X
from replicode.theory.population import (
    BIAS_IDLE,
    CHI_EPS,
    CHI_IDLE,
    SIGMA_EPS,
    SIGMA_IDLE,
    A,
    B,
    PopulationRisk,
    population_risk,
)
from replicode.theory.saddle import HIDDEN, IDLE, ChannelAverage, SaddleSystem, rate_symbol
from replicode.theory.stability import responses_of, stability_matrix
from replicode.theory.tokens import Definition, OuterProducts

RUNTIME = (
    "nodes",
    "linear",
    "inputs",
    "wording",
    "location",
    "fields",
    "prox",
    "channel",
    "proxfree",
    "rows",
    "onsets",
    "folds",
    "gaps",
    "mixture",
    "population",
    "hessian",
    "fixedpoint",
    "states",
    "solver",
    "energy",
    "jacobian",
    "script",
)
KINKS = "kinks"
LENGTHS = "lengths"
EMITTER_VERSION = "0.4"
EXPANSION = "expansion"


@dataclass(frozen=True)
class GeneratedModule:
    """The source of a standalone solver, with its signature and operation counts."""

    source: str = field(repr=False)
    signature: str
    operations: Mapping[str, int]

    def save(self, path: str | Path) -> Path:
        """Write the source whole or not at all."""
        return write(path, self.source, "path")

    def load(self) -> ModuleType:
        """The module, executed from its source."""
        return load_source(self.source, f"replicode_generated_{self.signature[:16]}")


@budget("generating the module")
def generate(system: SaddleSystem) -> GeneratedModule:
    """Emit the module of a derived system."""
    if not isinstance(system, SaddleSystem):
        raise InputError("system", system, "what `derive` returns")
    if system.lengths is None:
        raise InputError("tokens", None, "a number of tokens, or a distribution such as 1:0.2,2:0.3,3:0.5")
    if not system.activation.expr.has(X):
        raise Refusal(f"{system.activation.text} does not depend on the scores: there is no k to solve for")
    irs = {tokens: lower(system, tokens) for tokens in system.lengths.tokens}
    signature = system_signature(system)
    operations = _operations(irs)
    sections = [
        _header(system, operations, signature),
        _imports(_runtime_names(system)),
        _metadata(system, signature),
        *(f for tokens, ir in irs.items() for f in _length_functions(system, ir, tokens)),
        *_lengths(system, irs),
        _location(system.location),
        _law("hidden_law", "mean and covariance of (w_chi, w_z, y) at the hidden token", system.hidden_law),
        _law("idle_law", "mean and covariance of (w_chi, w_z) at an idle token", system.idle_law),
        _channel_rates(system),
        _channel_averages(system),
        _conjugates(system),
        _prior_update(system),
        _free_energy(system),
        *_curvature(derive_curvature(system)),
        _stability_matrix(system.model),
        _population(population_risk(system.task, system.model)),
        *([] if system.properties.smooth else [_kink_points(system)]),
        *(_runtime(name) for name in _runtime_names(system)),
    ]
    source = "\n\n\n".join(s.strip("\n") for s in sections) + "\n"
    return GeneratedModule(source, signature, operations)


def _operations(irs: Mapping[int, KernelIR]) -> dict[str, int]:
    """Operation counts by function."""
    return {f"{name}{_suffix(tokens, irs)}": n for tokens, ir in irs.items() for name, n in ir.operations().items()}


def _suffix(tokens: int, lengths: Sized) -> str:
    """What tells the functions of one length from those of the others."""
    return f"_{tokens}" if len(lengths) > 1 else ""


def _length_functions(system: SaddleSystem, ir: KernelIR, tokens: int) -> list[str]:
    """The kernels of one length."""
    suffix = _suffix(tokens, system.lengths.tokens if system.lengths else ())
    named = [(k, f"{k.name}{suffix}") for k in ir.kernels]
    functions = [
        kernel_function(k, ir.parameters, tokens, first_token(system), name, straight_line(system, k, tokens))
        for k, name in named
    ]
    return [*functions, _row_sum(system, ir.parameters, tokens, suffix)]


def _lengths(system: SaddleSystem, irs: Mapping[int, KernelIR]) -> list[str]:
    """The run-time's notion of a length, the table of all of them in front of what takes its first as a default."""
    before, mark, after = _runtime(LENGTHS).partition("class Setting(")
    return [before, _kernels(system, irs), mark + after]


def _kernels(system: SaddleSystem, irs: Mapping[int, KernelIR]) -> str:
    """The table of all lengths with their shares."""
    shares = dict(zip(system.lengths.tokens, system.lengths.weights, strict=True)) if system.lengths else {}
    fields = ("row_sum", "sigma", "pullback", "loss", "gradient", "hessian", "expansion", "curvatures")
    entries = [f"    Kernel({n}, {shares[n]!r}, {', '.join(f + _suffix(n, irs) for f in fields)})," for n in irs]
    return "\n".join(["KERNELS = (", *entries, ")"])


def _location(place: Location) -> str:
    """The hidden location's own log-weight: of the token's score x, and the rate at which it grows with it."""
    functions = [
        _function("own_log_weight", "x, nu", "the hidden token's own log-weight", _token_body(place.own)),
        _function("own_slope", "x, nu", "its slope in the score", _token_body(place.slope)),
    ]
    if place.kind == "ranked":
        body = [f"return {numpy_source(place.slope)}"]
        functions.append(_function("ranking_slope", "nu", "the slope of the log-weight in the score", body))
    else:
        functions.append(_function("ranking_slope", "nu", "no such slope", ["return np.nan"]))
    return "\n\n\n".join(functions) if place.weighted else _NO_LOCATION


def _token_body(expr: sp.Expr) -> list[str]:
    text = numpy_source(expr)
    return [f"return {text}" if X in expr.free_symbols else f"return {text} + np.zeros_like(x)"]


_NO_LOCATION = "own_log_weight = own_slope = ranking_slope = None  # the weight is in the law of the fields"


def system_signature(system: SaddleSystem) -> str:
    """Hash of the canonical expressions, IR version, options and run-time source; names do not enter."""
    parts = [
        sp.srepr(system.activation.expr),
        repr(sorted(system.activation.values.items())),
        sp.srepr(system.task.log_weight),
        repr(system.lengths),
        system.model.key,
        f"{IR_VERSION} {EMITTER_VERSION} {sp.__version__}",
        *(_runtime_text(name) for name in (LENGTHS, *_runtime_names(system))),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def first_token(system: SaddleSystem) -> int:
    """Slopes and curvatures of the token before are known from the others where the scores' sum does not matter."""
    return 1 if system.properties.shift_invariant else 0


def _header(system: SaddleSystem, operations: Mapping[str, int], signature: str) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in operations.items())
    equations = "\n".join(f"    {name} = {expr}" for name, expr in system.equations().items())
    name, text, weight = map(_escaped, (system.activation.name, system.activation.text, system.task.text))
    return f'''"""Replica theory of {name} attention. Generated by replicode; do not edit.

activation  {text}
task        log-weight {weight}
tokens      {system.lengths}
signature   {signature}
operations  {counts}

Free energy, with EM the average of the Moreau envelope M:

    {system.free_energy}

Saddle-point equations:

{equations}
"""'''


def _escaped(text: str) -> str:
    """Text as it may stand in a docstring, on one line and whatever it holds."""
    return text.encode("unicode_escape").decode("ascii").replace('"', '\\"')


def _imports(runtime: Sequence[str]) -> str:
    standard = {"from __future__ import annotations"}
    others: set[str] = set()
    for name in (LENGTHS, *runtime, "kernel"):
        for node in ast.parse(_runtime_text(name)).body:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("replicode."):
                continue
            line = ast.unparse(node)
            (others if "numpy" in line or "scipy" in line else standard).add(line)
    plain = sorted(_merged(standard), key=lambda line: (not line.startswith("from __future__"), line.split()[1]))
    future, rest = plain[:1], sorted(plain[1:], key=lambda line: (line.startswith("from"), line))
    return "\n".join(future) + "\n\n" + "\n".join(rest) + "\n\n" + "\n".join(sorted(others))


def _merged(lines: Iterable[str]) -> list[str]:
    """`from m import a` lines of the same module joined."""
    plain: list[str] = []
    joined: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("from "):
            module, _, names = line.removeprefix("from ").partition(" import ")
            joined.setdefault(module, set()).update(n.strip() for n in names.split(","))
        else:
            plain.append(line)
    return plain + [f"from {m} import {', '.join(sorted(n))}" for m, n in joined.items()]


def _metadata(system: SaddleSystem, signature: str) -> str:
    found = system.properties
    values = {name: float(value) for name, value in sorted(system.activation.values.items())}
    parameters = system.activation.parameters
    metadata = {
        "activation": system.activation.text,
        "name": system.activation.name,
        "task": system.task.text,
        "tokens": str(system.lengths) if system.tokens is None else system.tokens,
        "parameters": list(parameters),
        "signature": signature,
        "versions": {"emitter": EMITTER_VERSION, "ir": IR_VERSION, "sympy": sp.__version__},
        "options": {"loss": str(system.model.loss), "penalty": str(system.model.penalty)},
    }
    return "\n".join(
        [
            "Array = np.ndarray",
            "",
            f"METADATA = {pprint.pformat(metadata, sort_dicts=False, width=100)}",
            f"PARAMETERS = {parameters!r}",
            f"DEFAULTS: dict[str, float] = {values!r}",
            f"SHIFT_INVARIANT = {found.shift_invariant}",
            f"ELEMENTWISE = {found.elementwise}",
            f"EVEN_LOSS = {system.even}",
            f"MOMENTS = {len(channel_monomials(system)[0])}",
            f"LOCATION = {system.location.kind!r}",
            f"HARD_LIMIT = {system.location.hard}",
            f"SMOOTH_PATHS = {derivable(system)}",
        ]
    )


def _function(name: str, arguments: str, doc: str, body: Iterable[str]) -> str:
    lines = "\n".join(f"    {line}" if line else "" for line in body)
    return f'def {name}({arguments}):\n    """{doc[0].upper()}{doc[1:]}."""\n{lines}'


def _unpacked(names: Sequence[str], source: str) -> list[str]:
    return [f"{', '.join(names)}{',' if len(names) == 1 else ''} = {source}"] if names else []


def kernel_function(
    kernel: Kernel,
    parameters: Sequence[str],
    tokens: int | None = None,
    first: int = 0,
    name: str | None = None,
    program: StraightLine | None = None,
) -> str:
    """The source of one kernel, written out token by token where their number is given and small.

    `first` is the token from which on `expansion` has slopes and curvatures; it returns its rows one by one.
    A straight-line program is printed in place of the kernel's own statements.
    """
    arguments = [s.name for s in (*kernel.token_inputs, *kernel.scalar_inputs)] + ["params"]
    used = set().union(*[e.free_symbols for e in kernel.expressions()])
    named = [parameter_symbol(p) for p in parameters]
    body = _unpacked([s.name for s in named], "params") if used & set(named) else []
    if kernel.name == EXPANSION and tokens is not None and tokens <= UNROLLED_TOKENS:
        body += _straight_body(kernel, tokens, program or unrolled(kernel, tokens, first))
    else:
        body += _vector_body(kernel, first, "len(x)" if tokens is None else str(tokens))
    return _function(name or kernel.name, ", ".join(arguments), kernel.doc, body)


def _vector_body(kernel: Kernel, first: int, tokens: str) -> list[str]:
    """Statements on whole token vectors; `tokens` is the source of their number."""
    body = [_statement(kernel, s, tokens) for s in kernel.statements]
    results = []
    for output in kernel.outputs:
        lines, result = _output(kernel, output, tokens)
        body += lines
        results.append(result)
    if kernel.name == EXPANSION:
        position = [o.name for o in kernel.outputs].index("slope")
        results[position] = f"({results[position]})[{first}:]"
        results[-1] = f"[{results[-1]}[i, i:] for i in range({first}, {tokens})]"
    return [*body, f"return {', '.join(results)}"]


def straight_line(system: SaddleSystem, kernel: Kernel, tokens: int) -> StraightLine | None:
    """The program of `expansion` with its tokens written out, where they are few."""
    if kernel.name != EXPANSION or tokens > UNROLLED_TOKENS:
        return None
    return expansion_program(system, kernel, tokens, first_token(system))


def _straight_body(kernel: Kernel, tokens: int, program: StraightLine) -> list[str]:
    """Statements on one row of samples per token, which are handed out without stacking them."""
    used = set().union(*[e.free_symbols for _, e in program.assignments])
    used |= set().union(*[e.free_symbols for v in program.outputs.values() for e in flattened(v)])
    rows = {s: [row_symbol(s, token) for token in range(tokens)] for s in kernel.token_inputs}
    body = [line for s, names in rows.items() if used & set(names) for line in _unpacked(list(map(str, names)), str(s))]
    body += [f"{symbol} = {numpy_source(expr)}" for symbol, expr in program.assignments]
    results = [_rows_source(program.outputs[o.name]) for o in kernel.outputs]
    return [*body, f"return {', '.join(results)}"]


def _rows_source(value: Value) -> str:
    """An output written out: a number per sample, rows, or the rows of a matrix, from the diagonal on if symmetric."""
    if not isinstance(value, tuple):
        return numpy_source(value)
    parts = [_rows_source(part) for part in value]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _statement(kernel: Kernel, statement: Definition, tokens: str) -> str:
    text = numpy_source(statement.expr)
    name = statement.symbol.name
    if statement.kind == "sum":
        if not kernel.is_token(statement.expr):
            return f"{name} = {tokens} * ({text})"
        return f"{name} = {text}.sum(axis=0)" if statement.expr.is_Symbol else f"{name} = ({text}).sum(axis=0)"
    if statement.kind == "max":
        return f"{name} = ({text}).max(axis=0)"
    if statement.kind == "token" and not kernel.is_token(statement.expr):
        return f"{name} = np.broadcast_to({text}, x.shape)"
    return f"{name} = {text}"


def _output(kernel: Kernel, output: Output, tokens: str) -> tuple[list[str], str]:
    if not isinstance(output.value, OuterProducts):
        if kernel.is_token(output.value) or output.name not in ("slope", "sigmas"):
            return [], numpy_source(output.value)
        return [], f"np.broadcast_to({numpy_source(output.value)}, x.shape)"
    products = [f"{_side(kernel, a)}[:, None] * {_side(kernel, b)}" for a, b in output.value.outers]
    total = " + ".join(products) if products else f"np.zeros(({tokens}, *x.shape))"
    lines = [f"{output.name} = {total}"]
    if output.value.diagonal != 0:
        lines += [
            f"index = np.arange({tokens})",
            f"{output.name}[index, index] += {numpy_source(output.value.diagonal)}",
        ]
    return lines, output.name


def _side(kernel: Kernel, expr: sp.Expr) -> str:
    """A token vector as a bracketed factor; what does not depend on the token is broadcast."""
    text = numpy_source(expr)
    if not kernel.is_token(expr):
        return f"np.broadcast_to({text}, x.shape)"
    return text if expr.is_Symbol else f"({text})"


def _row_sum(system: SaddleSystem, parameters: Sequence[str], tokens: int, suffix: str) -> str:
    total = system.properties.row_sum
    name = f"row_sum{suffix}"
    if total is None:
        return _function(name, "params", "sum_l sigma_l, or None where it depends on the scores", ["return None"])
    renamed = {sp.Symbol(p, real=True): parameter_symbol(p) for p in parameters}
    text = numpy_source(total.xreplace({L: sp.Integer(tokens), **renamed}))
    body = [*_unpacked([parameter_symbol(p).name for p in parameters], "params"), f"return float({text})"]
    return _function(name, "params", "sum_l sigma_l, which does not depend on the scores", body)


def _law(name: str, doc: str, law: FieldLaw) -> str:
    covariance = ", ".join(
        "[" + ", ".join(numpy_source(law.covariance[i, j]) for j in range(law.covariance.cols)) + "]"
        for i in range(law.covariance.rows)
    )
    mean = ", ".join(numpy_source(e) for e in law.mean)
    body = [*_unpacked([s.name for s in ORDER_PARAMETERS], "order"), f"mean = np.array([{mean}])"]
    body += [f"return mean, np.array([{covariance}])"]
    return _function(name, "order, nu=0.0, noise=0.0" if name == "idle_law" else "order, nu, noise", doc, body)


def _token_fields() -> list[str]:
    """Order parameters, and the fields of the hidden token and of the idle ones, by name."""
    body = _unpacked([s.name for s in ORDER_PARAMETERS], "order")
    for array, b in (("w_chi", "k"), ("w_z", "v")):
        body.append(f"{HIDDEN.w[b]}, {IDLE.w[b]} = {array}[0], {array}[1:]")
    for array, b in (("g_chi", "k"), ("g_z", "v")):
        body.append(f"{HIDDEN.g[b]}, {IDLE.g[b]} = {array}[0], {array}[1:]")
    return body


def _channel_rates(system: SaddleSystem) -> str:
    body = _token_fields()
    if system.location.weighted:
        body.append(f"{HIDDEN.slope}, {IDLE.slope} = s_chi[0], s_chi[1:]")
    for theta in ORDER_PARAMETERS:
        average = system.channel[theta]
        body += ["", f"# dE[M]/d{theta.name} = {average.expression(L)}"]
        body.append(f"{rate_symbol(theta)} = {_over_tokens(average)}")
    body += ["", f"return {', '.join(rate_symbol(t).name for t in ORDER_PARAMETERS)}"]
    arguments = "order, nu, noise, w_chi, w_z, y, g_chi, g_z" + _slope_argument(system)
    return _function("channel_rates", arguments, "integrands of dE[M]/d(order parameters), by Price and Stein", body)


def _over_tokens(average: ChannelAverage) -> str:
    """The integrand of an average, summed over the tokens."""
    terms = [numpy_source(average.hidden)] if average.hidden != 0 else []
    terms += [f"({numpy_source(average.idle)}).sum(axis=0)"] if average.idle != 0 else []
    return " + ".join(terms) or "0.0"


def _slope_argument(system: SaddleSystem) -> str:
    """The slopes of the location's weight, where it is not in the law of the fields."""
    return ", s_chi" if system.location.weighted else ""


def channel_monomials(system: SaddleSystem) -> tuple[list[sp.Expr], Mapping[sp.Symbol, tuple[str, int]]]:
    """Products of fields whose averages make up all rates; and of each field its array, and whether it is idle."""
    rows = {"d_chi": (HIDDEN.w["k"], IDLE.w["k"]), "w_z": (HIDDEN.w["v"], IDLE.w["v"])}
    rows |= {"g_chi": (HIDDEN.g["k"], IDLE.g["k"]), "g_z": (HIDDEN.g["v"], IDLE.g["v"])}
    rows |= {"s_chi": (HIDDEN.slope, IDLE.slope)}
    where = {symbol: (name, idle) for name, pair in rows.items() for idle, symbol in enumerate(pair)}
    found = dict.fromkeys(m for t in ORDER_PARAMETERS for m, _ in _terms(system, t, where))
    return list(found), where


def _terms(
    system: SaddleSystem, theta: sp.Symbol, where: Mapping[sp.Symbol, tuple[str, int]]
) -> list[tuple[sp.Expr, sp.Expr]]:
    """A rate as monomials in the fields, with their coefficients; the score fields less their means."""
    means = {
        HIDDEN.w["k"]: HIDDEN.w["k"] + system.hidden_law.mean[0],
        IDLE.w["k"]: IDLE.w["k"] + system.idle_law.mean[0],
    }
    average = system.channel[theta]
    return [t for part in (average.hidden, average.idle) for t in _monomials(part.xreplace(means), where)]


def _monomials(part: sp.Expr, where: Mapping[sp.Symbol, tuple[str, int]]) -> list[tuple[sp.Expr, sp.Expr]]:
    fields = sorted(part.free_symbols & {*where, Y}, key=lambda s: s.name)
    terms = [t for t in sp.Poly(part, *fields).terms() if t[1] != 0] if fields else []
    return [(sp.Mul(*[f**k for f, k in zip(fields, powers, strict=True)]), c) for powers, c in terms]


def _channel_averages(system: SaddleSystem) -> str:
    """The rates averaged over weighted samples: first the moments of the fields, then the constants."""
    monomials, where = channel_monomials(system)
    moments = {monomial: sp.Symbol(f"e_{i + 1}", real=True) for i, monomial in enumerate(monomials)}
    body = ["u_chi, u_z = [weights * g for g in g_chi], [weights * g for g in g_z]"]
    body += [f"{moment} = {_moment(monomial, where)}" for monomial, moment in moments.items()]
    body += [f"return np.array([{', '.join(map(str, moments.values()))}])"]
    arguments = "weights, d_chi, w_z, y, g_chi, g_z" + _slope_argument(system)
    doc = "weighted sums of products of the fields, given as rows; d_chi is w_chi less its mean"
    first = _function("channel_moments", arguments, doc, body)
    body = [
        *_unpacked([s.name for s in ORDER_PARAMETERS], "order"),
        *_unpacked(list(map(str, moments.values())), "moments"),
    ]
    for theta in ORDER_PARAMETERS:
        rate = sp.Add(*[sp.factor_terms(c) * moments[m] for m, c in _terms(system, theta, where)])
        body.append(f"{rate_symbol(theta)} = {numpy_source(rate)}")
    body.append(f"return np.array([{', '.join(rate_symbol(t).name for t in ORDER_PARAMETERS)}])")
    second = _function("rates_from_moments", "order, nu, noise, moments", "averages of `channel_rates`", body)
    return f"{first}\n\n\n{second}"


def _moment(monomial: sp.Expr, where: Mapping[sp.Symbol, tuple[str, int]]) -> str:
    """The weighted sum of a product of fields, one of which carries the weights; over the idle tokens if idle."""
    factors = [f for base, k in monomial.as_powers_dict().items() for f in [base] * int(k)]
    factors.sort(key=lambda s: (not where.get(s, ("", 0))[0].startswith("g_"), s.name))
    first, *others = ((*where.get(f, ("y", 0)), f) for f in factors)
    names = [first[0].replace("g_", "u_"), *(name for name, _, _ in others)]
    if not first[1]:
        texts = [n if n == "y" else f"{n}[0]" for n in names]
        return f"({'*'.join(texts)}).sum()" if others else f"{texts[0]}.sum()"
    letters = ["a", "b", "c"][: len(names)]
    zipped = f"zip({', '.join(f'{n}[1:]' for n in names)}, strict=True)"
    return f"sum(({'*'.join(letters)}).sum() for {', '.join(letters)} in {zipped})"


def _conjugates(system: SaddleSystem) -> str:
    body = _unpacked([rate_symbol(t).name for t in ORDER_PARAMETERS], "rates")
    body += [f"{c} = {numpy_source(e)}" for c, e in system.conjugate_update.items()]
    body.append(f"return np.array([{', '.join(c.name for c in CONJUGATES)}])")
    return _function("conjugates_from_rates", "rates, alpha", "conjugates at which f is stationary in m, q, V", body)


def _prior_update(system: SaddleSystem) -> str:
    body = _unpacked([c.name for c in CONJUGATES], "conjugates")
    body += [f"{s} = {numpy_source(system.prior_update[s])}" for s in ORDER_PARAMETERS]
    body.append(f"return np.array([{', '.join(s.name for s in ORDER_PARAMETERS)}])")
    return _function(
        "prior_update",
        "conjugates, lambda_k, lambda_v",
        "order parameters at which f is stationary in the conjugates",
        body,
    )


def _free_energy(system: SaddleSystem) -> str:
    head = _unpacked([s.name for s in ORDER_PARAMETERS], "order") + _unpacked(
        [c.name for c in CONJUGATES], "conjugates"
    )
    arguments = f"order, conjugates, {ALPHA}, {LAMBDAS['k']}, {LAMBDAS['v']}"
    envelope = sp.Symbol("envelope", real=True)
    value = system.free_energy.replace(lambda e: e.func == sp.Function("EM"), lambda e: envelope)
    first = _function(
        "free_energy_value",
        f"{arguments}, envelope",
        "the free energy f, given E[M]",
        [*head, f"return {numpy_source(value)}"],
    )
    body = head + _unpacked([rate_symbol(t).name for t in ORDER_PARAMETERS], "rates")
    body += ["return np.array(", "    ["]
    for unknown in (*ORDER_PARAMETERS, *CONJUGATES):
        body.append(f"        {numpy_source(system.gradient[unknown])},  # df/d{unknown.name}")
    body += ["    ]", ")"]
    second = _function("free_energy_gradient", f"{arguments}, rates", "the gradient of f in its twelve unknowns", body)
    return f"{first}\n\n\n{second}"


def _curvature(found: Curvature) -> list[str]:
    """What the Jacobian of the saddle-point equations is made of."""
    paths = [_displacements(found), _bending(found)] if found.displacements else [_NO_PATHS]
    return [*paths, _free_energy_hessian(found), _train_loss_slopes(found)]


_NO_PATHS = "displacements = bending = None  # more than the law of the fields moves, or M has no second derivatives"
_FIELD_ARGUMENTS = "w_chi, w_z, y, g_chi, g_z"


def _displacements(found: Curvature) -> str:
    body = _token_fields()
    names: dict[str, list[str]] = {b: [] for b in BLOCKS}
    for theta, moved in found.displacements.items():
        name, like = f"t_{theta.name}", {"k": "w_chi", "v": "w_z"}[moved.block]
        body.append(f"{name} = token_rows({like}, {numpy_source(moved.hidden)}, {numpy_source(moved.idle)})")
        names[moved.block].append(name)
    body.append("return " + ", ".join(f"({', '.join(names[b])})" for b in BLOCKS))
    doc = "how each of m, q, V moves the fields of its block: t with d grad M = (d^2 M) t"
    return _function("displacements", f"order, nu, noise, {_FIELD_ARGUMENTS}", doc, body)


def _bending(found: Curvature) -> str:
    size = len(ORDER_PARAMETERS)
    body = [*_token_fields(), f"bent = np.zeros(({size}, {size}))"]
    for (a, b), average in found.bending.items():
        i, j = ORDER_PARAMETERS.index(a), ORDER_PARAMETERS.index(b)
        target = f"bent[{i}, {j}]" + (f" = bent[{j}, {i}]" if i != j else "")
        body.append(f"{target} = (weights * ({_over_tokens(average)})).sum()")
    body.append("return bent")
    doc = "weighted sums of grad M . d^2 w / da db, for pairs of order parameters"
    return _function("bending", f"order, nu, noise, weights, {_FIELD_ARGUMENTS}", doc, body)


def _second_rates(entries: Iterable[sp.Expr]) -> list[str]:
    """The second derivatives of E[M] that occur, from the matrix `second`."""
    used = set().union(*[e.free_symbols for e in entries])
    pairs = [(i, j) for i in range(len(ORDER_PARAMETERS)) for j in range(i, len(ORDER_PARAMETERS))]
    symbols = {second_rate_symbol(ORDER_PARAMETERS[i], ORDER_PARAMETERS[j]): (i, j) for i, j in pairs}
    return [f"{s} = second[{i}, {j}]" for s, (i, j) in symbols.items() if s in used]


def _free_energy_hessian(found: Curvature) -> str:
    body = _unpacked([s.name for s in ORDER_PARAMETERS], "order")
    body += _unpacked([c.name for c in CONJUGATES], "conjugates")
    body += [*_second_rates(found.jacobian), "return np.array(", "    ["]
    for i, unknown in enumerate((*ORDER_PARAMETERS, *CONJUGATES)):
        body.append(f"        [{', '.join(numpy_source(e) for e in found.jacobian.row(i))}],  # d/d{unknown.name}")
    body += ["    ]", ")"]
    arguments = f"order, conjugates, {ALPHA}, {LAMBDAS['k']}, {LAMBDAS['v']}, second"
    doc = "the Hessian of f in its twelve unknowns, given that of E[M]: the Jacobian of the saddle-point equations"
    return _function("free_energy_hessian", arguments, doc, body)


def _train_loss_slopes(found: Curvature) -> str:
    body = _unpacked([s.name for s in ORDER_PARAMETERS], "order")
    body += _unpacked([rate_symbol(t).name for t in ORDER_PARAMETERS], "rates")
    body += _second_rates(found.train_loss)
    body.append(f"return np.array([{', '.join(numpy_source(e) for e in found.train_loss)}])")
    doc = "the gradient of the training loss in the order parameters"
    return _function("train_loss_slopes", "order, rates, second", doc, body)


def _stability_matrix(model: Model) -> str:
    matrix = stability_matrix(model)
    names = list(dict.fromkeys(s.name for s in responses_of(model)))
    lines = ["[" + ", ".join(numpy_source(e) for e in matrix.row(i)) + "]" for i in range(matrix.rows)]
    body = [*_unpacked([s.name for s in ORDER_PARAMETERS], "order"), *_unpacked(names, "squares")]
    body.append(f"return np.array([{', '.join(lines)}])")
    doc = "the de Almeida-Thouless matrix from the averages of the squared responses dG/dw"
    return _function("stability_matrix", f"order, {ALPHA}, squares", doc, body)


def _population(risk: PopulationRisk) -> str:
    best = risk.best_value_overlap
    score = (risk.score_mean, risk.score_variance, risk.idle_score_variance)
    given = not risk.gaussian
    functions = [
        _function(
            "risk_on_manifold",
            f"m_v, q_v, {NOISE}, {A}, {B}",
            "population risk in A = E sigma_eps and B = E sum sigma^2",
            [f"return {numpy_source(risk.on_manifold)}"],
        ),
        _function("best_value_overlap", f"{A}, {B}", "m_v of the best v = m_v v*", [f"return {numpy_source(best)}"]),
        _function(
            "score_law",
            f"m_k, q_k, {NU}" + (", chi_star" if given else ""),
            "mean and variance of the hidden token's score, variance of an idle one's"
            + (", given chi*" if given else ""),
            [f"return {', '.join(numpy_source(e) for e in score)}"],
        ),
        _overlap_risk(risk, given),
    ]
    return "\n\n\n".join(functions)


def _overlap_risk(risk: PopulationRisk, given: bool) -> str:
    names = [s.name for s in (*risk.model.overlaps, *risk.model.cross_overlaps)]
    body = [
        *_unpacked(names, "overlaps"),
        f"{CHI_EPS}, {CHI_IDLE} = chi[0], chi[1:]",
        f"{SIGMA_EPS}, {SIGMA_IDLE} = sigmas[0], sigmas[1:]",
        *([f"{CHI_STAR} = stars[1:]"] if given else []),
        f"{BIAS_IDLE} = ({numpy_source(risk.bias)}).sum(axis=0)",
        f"idle = ({numpy_source(risk.idle)}).sum(axis=0)",
        *([f"{CHI_STAR} = stars[0]"] if given else []),
        f"return idle + {numpy_source(risk.hidden)}",
    ]
    return _function(
        "overlap_risk_terms",
        f"overlaps, {NU}, {NOISE}, chi, sigmas" + (", stars" if given else ""),
        "E[(y - f)^2 | scores] from all seven overlaps",
        body,
    )


def _kink_points(system: SaddleSystem) -> str:
    renamed = {sp.Symbol(p, real=True): parameter_symbol(p) for p in system.activation.parameters}
    points = [numpy_source(p.xreplace(renamed)) for p in kink_points(system.activation)]
    names = [parameter_symbol(p).name for p in system.activation.parameters]
    body = [*_unpacked(names, "params"), f"return np.array([{', '.join(points)}])"]
    return _function("kink_points", "params", "the scores at which sigma has a kink", body)


def _runtime_names(system: SaddleSystem) -> tuple[str, ...]:
    """The run-time files; what an activation with kinks replaces comes before the script that runs it all."""
    return RUNTIME if system.properties.smooth else (*RUNTIME[:-1], KINKS, RUNTIME[-1])


def _runtime_text(name: str) -> str:
    return files("replicode.codegen.runtime").joinpath(f"{name}.py").read_text(encoding="utf-8")


def _runtime(name: str) -> str:
    """A run-time file without its imports; its docstring becomes a comment."""
    text = _runtime_text(name)
    tree = ast.parse(text)
    dropped: set[int] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            dropped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    doc = tree.body[0]
    dropped |= set(range(1, (doc.end_lineno or 1) + 1))
    kept = [line for i, line in enumerate(text.split("\n"), 1) if i not in dropped]
    summary = (ast.get_docstring(tree) or name).split("\n")[0]
    return f"# {summary}\n\n" + "\n".join(kept).strip("\n")
