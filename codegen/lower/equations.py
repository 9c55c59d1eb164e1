"""Functions of order parameters, fields and overlaps, as theory hands their equations over, in the IR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import sympy as sp

from replicode.codegen.contract import declared
from replicode.codegen.ir import (
    Assignment,
    Entry,
    Factor,
    Function,
    Matrix,
    Moment,
    OverTokens,
    Returned,
    Split,
    TokenRows,
    Unpacked,
    Vector,
)
from replicode.codegen.lower.kernels import parameter_symbol
from replicode.codegen.lower.stamp import ActivationSystem
from replicode.theory.derive.curvature import Curvature, second_rate_symbol
from replicode.theory.derive.factorised import Ratio
from replicode.theory.derive.label import LabelLaw, line
from replicode.theory.derive.location import Location
from replicode.theory.derive.population import (
    BIAS_IDLE,
    CHI_EPS,
    CHI_IDLE,
    SIGMA_EPS,
    SIGMA_IDLE,
    PopulationRisk,
    manifold_risk,
    population_risk,
    score_law,
)
from replicode.theory.derive.residual import is_affine, residual_equation
from replicode.theory.derive.saddle import ChannelAverage, SaddleSystem, envelope_of, rate_symbol
from replicode.theory.derive.sensitivity import ENVELOPE, explicit_slopes, noise_risk_slope, risk_slopes
from replicode.theory.derive.spectrum import coordinate_terms, penalised_norms, placed, trace_symbols
from replicode.theory.derive.stability import responses_of, stability_matrix
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.language.activation import Activation, TokenForm
from replicode.theory.language.nodes import L, X, sigmoid, softplus
from replicode.theory.language.task import Task
from replicode.theory.model import CHI_STAR, LABEL_NOISE, Model, TokenFields, Y
from replicode.theory.properties.kinks import kink_points
from replicode.theory.properties.symbolic import row_sum as row_sum_of

FIELDS = {"score": "w_chi", "value": "w_z"}
GAINS = {"score": "g_chi", "value": "g_z"}
SLOPES = {"score": "s_chi", "value": "s_z"}


@dataclass(frozen=True)
class Names:
    """How the functions of a model take their arguments apart: vectors by their entries, fields by tokens."""

    order: Unpacked
    conjugates: Unpacked
    rates: Unpacked
    tokens: tuple[Split, ...]
    slopes: tuple[Split, ...]


def names_of(model: Model) -> Names:
    """The names in the order that the model defines."""
    hidden, idle = model.hidden, model.idle
    roles = [(name, model.block(name).role) for name in hidden.w]
    return Names(
        Unpacked("order", model.order_parameters),
        Unpacked("conjugates", model.conjugates),
        Unpacked("rates", tuple(rate_symbol(t) for t in model.order_parameters)),
        (
            *(Split(FIELDS[role], hidden.w[name], idle.w[name]) for name, role in roles),
            *(Split(GAINS[role], hidden.g[name], idle.g[name]) for name, role in roles),
        ),
        tuple(Split(SLOPES[role], hidden.slopes[name], idle.slopes[name]) for name, role in roles),
    )


def slopes_of(system: SaddleSystem) -> tuple[str, ...]:
    """The arrays of slopes that a system has: of the weight of the location, of the law of the label."""
    weighted = {"score": system.location.weighted, "value": system.label.weighted}
    return tuple(SLOPES[role] for role in ("score", "value") if weighted[role])


def explicit(name: str, names: Sequence[Unpacked], equations: Mapping[sp.Symbol, sp.Expr]) -> Function:
    """A vector of named equations."""
    assignments = tuple(Assignment(s, e) for s, e in equations.items())
    return Function(declared(name), tuple(names), assignments, Vector(tuple(equations)))


def laws(system: SaddleSystem) -> list[Function]:
    """The laws of the fields at the hidden token and at an idle one."""
    order = names_of(system.model).order
    return [_law("hidden_law", system.hidden_law, order), _law("idle_law", system.idle_law, order)]


def _law(name: str, law: FieldLaw, order: Unpacked) -> Function:
    return Function(declared(name), (order,), (), (Vector(tuple(law.mean)), Matrix.of(law.covariance)))


def location_functions(place: Location) -> list[Function]:
    """The hidden location's own log-weight: of the token's score x, and the rate at which it grows with it."""
    alone = place.weighted and place.kind != "coupled"
    equations = {"own_log_weight": place.own, "own_slope": place.slope} if alone else {}
    functions = [Function(declared(name), (), (), expr, shaped_like="x") for name, expr in equations.items()]
    ranked = place.kind == "ranked"
    return [*functions, *([Function(declared("ranking_slope"), (), (), place.slope)] if ranked else [])]


def weight_functions(setting: Task) -> list[Function]:
    """The weight of every location, its mean over them, and the law of chi* at the hidden token if it is Gaussian."""
    law = setting.hidden_score() if setting.gaussian else None
    total = row_sum_of(setting.weight)
    mean = None if total is None else total / L
    return [
        Function(declared("teacher_law"), (), (), law),
        Function(declared("mean_weight"), (), (), mean),
        _location_logs(Activation("weight", setting.log_weight).token_form()),
    ]


def _location_logs(form: TokenForm) -> Function:
    """log g of every location, sums over the tokens innermost first."""
    eps, idle = ({X: s} for s in (CHI_EPS, CHI_IDLE))
    sums = [Assignment(s, OverTokens(body.xreplace(eps), body.xreplace(idle))) for s, body in form.sums]
    logs = sp.Symbol("logs", real=True)
    rows = Assignment(logs, TokenRows("chi", form.f.xreplace(eps), form.f.xreplace(idle)))
    return Function(declared("location_logs"), (Split("chi", CHI_EPS, CHI_IDLE),), (*sums, rows), logs)


def channel_rates(system: SaddleSystem) -> Function:
    """The integrands of dE[M]/d(order parameters)."""
    assignments = [
        Assignment(rate_symbol(t), _over(average), f"dE[M]/d{t.name} = {average.expression(L)}")
        for t, average in system.channel.items()
    ]
    signature, names = declared("channel_rates", *slopes_of(system)), names_of(system.model)
    taken: tuple[Unpacked | Split, ...] = (names.order, *names.tokens, *names.slopes)
    return Function(signature, taken, tuple(assignments), names.rates.symbols)


def _over(average: ChannelAverage, weights: str | None = None) -> OverTokens:
    return OverTokens(average.hidden, average.idle, weights)


@dataclass(frozen=True)
class Moments:
    """Products of fields whose averages make up all rates, with their symbols, and every rate in them."""

    moments: Mapping[sp.Symbol, Moment]
    rates: Mapping[sp.Symbol, sp.Expr]


def channel_moments(system: SaddleSystem) -> Moments:
    """The rates as coefficients times moments of the fields; the score fields less their means."""
    model, names = system.model, names_of(system.model)
    splits = (*names.tokens, *names.slopes)
    arrays = {s: split.source for split in splits for s in (split.hidden, split.idle)} | {Y: "y"}
    arrays |= {w: "d_chi" for fields in (model.hidden, model.idle) for w in _scores(fields, model)}
    idle = {split.idle for split in splits}
    terms = {theta: _terms(system, theta, arrays) for theta in model.order_parameters}
    found = dict.fromkeys(m for each in terms.values() for m, _ in each)
    symbols = {monomial: sp.Symbol(f"e_{i + 1}", real=True) for i, monomial in enumerate(found)}
    moments = {
        symbol: Moment(tuple(Factor(arrays[f], f in idle) for f in _factors(monomial)))
        for monomial, symbol in symbols.items()
    }
    rates = {rate_symbol(t): sp.Add(*[sp.factor_terms(c) * symbols[m] for m, c in each]) for t, each in terms.items()}
    return Moments(moments, rates)


def _scores(fields: TokenFields, model: Model) -> list[sp.Symbol]:
    """The token's score field, where there are scores."""
    return [fields.w[b.name] for b in model.blocks if b.role == "score"]


def _factors(monomial: sp.Expr) -> list[sp.Symbol]:
    """The fields of a product, each as often as it occurs."""
    return [f for base, k in monomial.as_powers_dict().items() for f in [base] * int(k)]


def _terms(system: SaddleSystem, theta: sp.Symbol, fields: Mapping[sp.Symbol, str]) -> list[tuple[sp.Expr, sp.Expr]]:
    """A rate as monomials in the fields, with their coefficients."""
    model = system.model
    pairs = [
        (w, law)
        for fields, law in ((model.hidden, system.hidden_law), (model.idle, system.idle_law))
        for w in _scores(fields, model)
    ]
    means = {w: w + law.mean[law.fields.index(w)] for w, law in pairs}
    average = system.channel[theta]
    return [t for part in (average.hidden, average.idle) for t in _monomials(part.xreplace(means), fields)]


def _monomials(part: sp.Expr, fields: Mapping[sp.Symbol, str]) -> list[tuple[sp.Expr, sp.Expr]]:
    known = sorted(part.free_symbols & set(fields), key=lambda s: s.name)
    terms = [t for t in sp.Poly(part, *known).terms() if t[1] != 0] if known else []
    return [(sp.Mul(*[f**k for f, k in zip(known, powers, strict=True)]), c) for powers, c in terms]


def moment_functions(system: SaddleSystem, found: Moments) -> list[Function]:
    """The rates averaged over weighted samples: first the moments of the fields, then the constants."""
    symbols = tuple(found.moments)
    signature = declared("channel_moments", *slopes_of(system))
    sums = tuple(Assignment(s, moment) for s, moment in found.moments.items())
    return [
        Function(signature, (), sums, Vector(symbols)),
        explicit("rates_from_moments", (names_of(system.model).order, Unpacked("moments", symbols)), found.rates),
    ]


def saddle_maps(system: SaddleSystem) -> list[Function]:
    """The conjugates from the rates, the order parameters from the conjugates, and f with its gradient."""
    model, names = system.model, names_of(system.model)
    unknowns = (*model.order_parameters, *model.conjugates)
    slopes = Vector(tuple(system.gradient[u] for u in unknowns), tuple(f"df/d{u.name}" for u in unknowns))
    value = system.free_energy.xreplace({envelope_of(model): ENVELOPE})
    return [
        explicit("conjugates_from_rates", (names.rates,), system.conjugate_update),
        *_of_prior(
            model,
            explicit("prior_update", (names.conjugates,), {s: system.prior_update[s] for s in model.order_parameters}),
            Function(declared("free_energy_value"), (names.order, names.conjugates), (), value),
            Function(declared("free_energy_gradient"), (names.order, names.conjugates, names.rates), (), slopes),
        ),
    ]


def _of_prior(model: Model, *functions: Function) -> list[Function]:
    """Functions of the prior as they are, or, of structured tokens, with the means over the coordinates."""
    return [_with_traces(f, model) for f in functions] if model.structured else list(functions)


def _with_traces(function: Function, model: Model) -> Function:
    """The function with the means as a last argument."""
    traces = Unpacked("traces", tuple(trace_symbols(model).values()))
    assigned = tuple(
        replace(a, value=placed(a.value, model)) if isinstance(a.value, sp.Basic) else a for a in function.assignments
    )
    return Function(
        declared(function.name, "traces"),
        (*function.names, traces),
        assigned,
        _placed(function.returned, model),
    )


def _placed(returned: Returned, model: Model) -> Returned:
    match returned:
        case Vector(entries=entries):
            return replace(returned, entries=tuple(placed(e, model) for e in entries))
        case Matrix(rows=rows):
            return replace(returned, rows=tuple(tuple(placed(e, model) for e in row) for row in rows))
    return placed(returned, model)


def spectral_functions(system: SaddleSystem) -> list[Function]:
    """What a coordinate of structured tokens adds to the means, and the norms of the weights."""
    model = system.model
    if not model.structured:
        return []
    norms = penalised_norms(system.free_energy, model)
    return [
        Function(declared("coordinate_terms"), (), (), coordinate_terms(model)),
        *_of_prior(model, explicit("penalised_norms", (names_of(model).conjugates,), norms)),
    ]


def curvature_functions(found: Curvature, model: Model) -> list[Function]:
    """What the Jacobian of the saddle-point equations is made of."""
    names = names_of(model)
    notes = tuple(f"d/d{u.name}" for u in (*model.order_parameters, *model.conjugates))
    hessian = Function(
        declared("free_energy_hessian"),
        (names.order, names.conjugates),
        _second_rates(found.jacobian, model),
        Matrix.of(found.jacobian, notes),
    )
    (hessian,) = _of_prior(model, hessian)
    slopes = Function(
        declared("train_loss_slopes"),
        (names.order, names.rates),
        _second_rates(found.train_loss, model),
        Vector(tuple(found.train_loss)),
    )
    return [*([_displacements(found, model), _bending(found, model)] if found.displacements else []), hessian, slopes]


def differentiable(system: SaddleSystem) -> bool:
    """Whether the derivatives of a solution are at hand: the slopes of the risk are those of labels that are fields."""
    return system.model.has_scores and not system.label.weighted


def sensitivity_functions(system: SaddleSystem) -> list[Function]:
    """What the derivatives of a solution in the parameters are made of."""
    if not differentiable(system):
        return []
    names = names_of(system.model)
    taken = names.order, names.conjugates, names.rates
    rows = Matrix.of(explicit_slopes(system), ("d/dalpha", "d/dlambda_k", "d/dlambda_v"))
    return _of_prior(system.model, Function(declared("parameter_slopes"), taken, (), rows))


def _second_rates(entries: Iterable[sp.Expr], model: Model) -> tuple[Assignment, ...]:
    """The second derivatives of E[M] that occur, from the matrix `second`."""
    used = set().union(*[e.free_symbols for e in entries])
    symbols = {second_rate_symbol(*pair): pair for pair in combinations_with_replacement(model.order_parameters, 2)}
    places = {s: map(model.index, pair) for s, pair in symbols.items() if s in used}
    return tuple(Assignment(s, Entry("second", *pair)) for s, pair in places.items())


def _displacements(found: Curvature, model: Model) -> Function:
    named = {theta: sp.Symbol(f"t_{theta.name}", real=True) for theta in found.displacements}
    moved = found.displacements.items()
    rows = tuple(Assignment(named[t], TokenRows(FIELDS[model.block(d.block).role], d.hidden, d.idle)) for t, d in moved)
    returned = tuple(tuple(named[t] for t, d in moved if d.block == b) for b in model.hidden.w)
    names = names_of(model)
    return Function(declared("displacements"), (names.order, *names.tokens), rows, returned)


def _bending(found: Curvature, model: Model) -> Function:
    bent, size, names = sp.Symbol("bent"), len(model.order_parameters), names_of(model)
    sums = []
    for pair, average in found.bending.items():
        i, j = map(model.index, pair)
        targets = dict.fromkeys([Entry(bent.name, i, j), Entry(bent.name, j, i)])
        sums.append(Assignment(tuple(targets), _over(average, "weights")))
    return Function(declared("bending"), (names.order, *names.tokens), tuple(sums), bent, zeros=(bent.name, size))


def stability_function(model: Model) -> Function:
    """The de Almeida-Thouless matrix, scores before values."""
    by_role = [model.blocks.index(model.block(name)) for name in model.hidden.w]
    matrix, responses = (m.extract(by_role, by_role) for m in (stability_matrix(model), responses_of(model)))
    squares = Unpacked("squares", tuple(dict.fromkeys(responses)))
    function = Function(declared("stability_matrix"), (names_of(model).order, squares), (), Matrix.of(matrix))
    return _of_prior(model, function)[0]


def label_functions(told: LabelLaw, star: sp.Symbol) -> list[Function]:
    """The law of a label that is no Gaussian field, branch by branch."""
    taken = told.branches[:1] if told.mirrored else told.branches
    named = {star: X, LABEL_NOISE: sp.Symbol("xi", real=True)}
    if told.kind == "threshold":
        sides = [line(b.chance.args[0], star) for b in taken]
        return [Function(declared("label_lines"), (), (), Matrix(tuple((*side, sp.S.One) for side in sides if side)))]
    if told.kind == "lines":
        lines = [(line(b.value, star), b.chance) for b in taken]
        return [Function(declared("label_lines"), (), (), Matrix(tuple((*at, p) for at, p in lines if at)))]
    if told.kind == "chances":
        chances = tuple(log_of(b.chance).xreplace(named) for b in taken)
        return [Function(declared("label_chances"), (), (), chances, shaped_like="x")]
    if told.kind == "sampled":
        pairs = tuple(e.xreplace(named) for b in taken for e in (b.value, b.chance))
        return [Function(declared("label_samples"), (), (), pairs)]
    return []


def log_of(chance: sp.Expr) -> sp.Expr:
    """The logarithm of a chance, kept off that of zero; without underflow at all where it is a sigmoid."""
    if isinstance(chance, sigmoid):
        return -softplus(-chance.args[0])
    return sp.log(sp.Max(chance, sp.Float("1e-300")))


def tested(system: SaddleSystem) -> bool:
    """Whether the loss of a fresh sequence is more than half its squared error."""
    return (not system.model.square or system.label.weighted) and not system.model.radial


def loss_functions(system: SaddleSystem) -> list[Function]:
    """The loss itself, with two derivatives in the output where that is searched for."""
    if not tested(system):
        return []
    value = Function(declared("loss_value"), (), (), system.model.loss, shaped_like="f")
    slopes = system.values.searched
    return [value, *([Function(declared("loss_slopes"), (), (), slopes, shaped_like="f")] if slopes else [])]


def exact_risk(system: SaddleSystem) -> bool:
    """Whether the risk is known from all overlaps; without scores, where those of the teacher are Gaussian."""
    return not system.label.weighted and (system.model.has_scores or system.task.gaussian)


def risk_functions(system: SaddleSystem) -> list[Function]:
    """The risk of a fixed estimator; where the label is no field, or there are no scores, that on the manifold."""
    if exact_risk(system):
        risk = population_risk(system.task, system.model.with_scores())
        return population_functions(risk, system.location.weighted)
    found_risk = manifold_risk(system.model)
    names = tuple(s.name for s in found_risk.moments)
    later = () if system.model.radial else names
    found = [
        Function(declared("risk_on_manifold", *names), (), (), found_risk.on_manifold),
        Function(declared("noise_risk", *later), (), (), found_risk.noise_risk),
        Function(declared("best_value_overlap", *later), (), (), found_risk.best_value_overlap),
    ]
    if not system.model.has_scores:
        return found
    mean, *variances = score_law(system.task, system.model, system.location.weighted)
    return [*found, Function(declared("score_law"), (), (), (mean, *variances))]


def population_functions(risk: PopulationRisk, weighted: bool) -> list[Function]:
    """The risk of a fixed estimator, on the manifold and from all its overlaps; the law of scores without a weight."""
    base = sp.S.Zero, risk.idle_score_variance, risk.idle_score_variance
    score = base if weighted else (risk.score_mean, risk.score_variance, risk.idle_score_variance)
    return [
        Function(declared("risk_on_manifold"), (), (), risk.on_manifold),
        Function(declared("risk_slopes_on_manifold"), (), (), Vector(risk_slopes(risk))),
        Function(declared("noise_risk"), (), (), risk.model.noise_risk()),
        Function(declared("noise_risk_slope"), (), (), noise_risk_slope(risk.model)),
        Function(declared("best_value_overlap"), (), (), risk.best_value_overlap),
        Function(declared("score_law"), (), (), score),
        _overlap_risk(risk),
    ]


def _overlap_risk(risk: PopulationRisk) -> Function:
    star, stars = (sp.Symbol(f"{CHI_STAR.name}_{token}", real=True) for token in ("eps", "l"))
    by_role = (risk.model.scores, risk.model.values)
    overlaps = Unpacked("overlaps", tuple(s for b in by_role for s in (b.m, b.q)) + risk.model.cross_overlaps)
    tokens = Split("chi", CHI_EPS, CHI_IDLE), Split("sigmas", SIGMA_EPS, SIGMA_IDLE), Split("stars", star, stars)
    hidden, idle, bias = (
        e.xreplace({CHI_STAR: s}) for e, s in ((risk.hidden, star), (risk.idle, stars), (risk.bias, stars))
    )
    total = sp.Symbol("risk", real=True)
    sums = Assignment(BIAS_IDLE, OverTokens(sp.S.Zero, bias)), Assignment(total, OverTokens(hidden, idle))
    stars_taken = () if risk.gaussian else ("stars",)
    return Function(declared("overlap_risk_terms", *stars_taken), (overlaps, *tokens), sums, total)


def parameters_of(system: ActivationSystem) -> tuple[dict[sp.Symbol, sp.Symbol], Unpacked]:
    """The user's parameters by the names that they have in the module, and these as entries of `params`."""
    named = {sp.Symbol(p, real=True): parameter_symbol(p) for p in system.activation.parameters}
    return named, Unpacked("params", tuple(named.values()))


def row_sum(system: ActivationSystem, tokens: int, total: sp.Expr | None) -> Function:
    """sum_l sigma_l where it does not depend on the scores."""
    named, params = parameters_of(system)
    value = None if total is None else total.xreplace({L: sp.Integer(tokens), **named})
    return Function(declared("row_sum"), (params,), (), value)


def kinks(system: ActivationSystem) -> Function:
    """The scores at which sigma has a kink."""
    named, params = parameters_of(system)
    points = tuple(p.xreplace(named) for p in kink_points(system.activation))
    return Function(declared("kink_points"), (params,), (), Vector(points))


def ratio_functions(system: ActivationSystem, found: Ratio | None) -> list[Function]:
    """sigma as a ratio of one token's functions, where it is one."""
    named, params = parameters_of(system)
    parts = () if found is None else tuple(e.xreplace(named) for e in found.parts)
    return [Function(declared("token_ratio"), (params,), (), parts, shaped_like="x")] if parts else []


def by_residual(system: SaddleSystem) -> bool:
    """Whether all critical points of the prox are roots of one polynomial."""
    smooth = bool(system.properties.smooth) and system.model.square and system.model.has_scores
    return smooth and is_affine(system.activation)


def residual_functions(system: SaddleSystem) -> list[Function]:
    """That polynomial, and what belongs to a root of it."""
    if not by_residual(system):
        return []
    found = residual_equation(system.values)
    return [
        Function(declared("residual_coefficients"), (), (), found.coefficients, shaped_like="y"),
        Function(declared("residual_point"), (), (), found.point),
    ]
