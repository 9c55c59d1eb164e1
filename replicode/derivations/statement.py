"""The model in words, said once in front of every derivation: data, estimator, loss, and what the symbols are.

A `Line` is words with mathematics between them; a `Math` knows how it is written in plain text and in LaTeX.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy as sp

from replicode.theory.language.activation import Activation
from replicode.theory.language.nodes import TokenSum, X
from replicode.theory.model import LABEL_NOISE, LAMBDA, NOISE, THETA, Model
from replicode.theory.typeset.notation import latex, plain

if TYPE_CHECKING:
    from replicode.derivations.present import Derivation


@dataclass(frozen=True)
class Math:
    """A formula within a line."""

    plain: str
    tex: str


Line = tuple["str | Math", ...]


def _of(expr: sp.Expr) -> Math:
    return Math(plain(expr), latex(expr))


TOKENS = Math("X_1, ..., X_L in R^D", r"X_1, \dots, X_L \in \mathbb{R}^D")
NORMAL = Math("N(0, I)", r"\mathcal{N}(0, I)")
TEACHERS = Math("k*, v* ~ N(0, I)", r"k^*, v^* \sim \mathcal{N}(0, I)")
TEACHER_SCORE = Math("chi*_l = X_l.k*/sqrt(D)", r"\chi^*_\ell = X_\ell \cdot k^*/\sqrt{D}")
TEACHER_VALUE = Math("z*_l = X_l.v*/sqrt(D)", r"z^*_\ell = X_\ell \cdot v^*/\sqrt{D}")
SCORE = Math("chi_l = X_l.k/sqrt(D)", r"\chi_\ell = X_\ell \cdot k/\sqrt{D}")
VALUE = Math("z_l = X_l.v/sqrt(D)", r"z_\ell = X_\ell \cdot v/\sqrt{D}")
EPS = Math("eps", r"\varepsilon")
XI = Math("xi", r"\xi")


def statement(found: Derivation) -> list[Line]:
    """What the data, the estimator, the training and the symbols of a level are."""
    lines = [_data(found), _task(found), _label(found.model)]
    if found.activation is not None:
        lines.append(_estimator(found, found.activation))
    return [*lines, *_LEVELS.get(found.level, _trained)(found)]


def _data(found: Derivation) -> Line:
    law = Math("N(0, Sigma)", r"\mathcal{N}(0, \Sigma)") if found.model.structured else NORMAL
    return ("Data. A sequence has L tokens ", TOKENS, ", independent ", law, ". Hidden are two directions ", TEACHERS,
            " and one location ", EPS, ". Teacher scores ", TEACHER_SCORE, ", teacher values ", TEACHER_VALUE,
            ".")  # fmt: skip


def _task(found: Derivation) -> Line:
    if not found.model.has_scores:
        return ("Task. There are no scores: every token counts alike.",)
    name = f"Task {found.task.name}" if found.task.name != "expression" else "Task"
    return (f"{name}. The location ", EPS, " is uniform, and sequences are weighed by g, normalised to E g = 1: ",
            Math("log g = ", r"\log g = "), _of(_in_scores(found.task.log_weight, "chi_star_eps")), ".")  # fmt: skip


def _in_scores(expr: sp.Expr, own: str, summed: str = "chi_star_l") -> sp.Expr:
    """An expression of the language in the scores themselves: x outside of sums is `own`, in them `summed`."""
    own_score, score = (sp.Symbol(name, real=True) for name in (own, summed))
    outermost = {n: n.args[0].xreplace({X: score}) for n in expr.atoms(TokenSum)}
    sums = {n: sp.Function("TokenSum")(body) for n, body in outermost.items()}
    return expr.xreplace(sums).xreplace({X: own_score})


def _label(model: Model) -> Line:
    hidden = Math("z* = z*_eps", r"z_{*} = z^*_\varepsilon")
    if not isinstance(model.label, sp.Expr):
        told: list[str | Math] = []
        for y, chance in model.label:
            told += [", " if told else "", _of(y), " with chance ", _of(chance)]
        return ("Label. y is ", *told, ", where ", hidden, ".")
    noise: Line = (", and ", XI, " ~ ", Math("N(0, 1)", r"\mathcal{N}(0, 1)")) if model.label.has(LABEL_NOISE) else ()
    level: Line = ("; ", _of(NOISE), " is --noise") if model.label.has(NOISE) else ()
    return ("Label. ", Math("y = ", "y = "), _of(model.label), ", where ", hidden,
            " is the teacher value of the hidden token", *noise, *level, ".")  # fmt: skip


def _estimator(found: Derivation, activation: Activation) -> Line:
    told: Line = (", ", Math("sigma_l = ", r"\sigma_\ell = "), _of(_in_scores(activation.expr, "chi_l", "chi_l")))
    given: Line = (", of the scores ", SCORE) if found.model.has_scores else ()
    return ("Estimator. ", Math("f(X) = sum_l sigma_l z_l", r"f(X) = \sum_\ell \sigma_\ell z_\ell"), *told, *given,
            " and the values ", VALUE, ".")  # fmt: skip


def _objective(found: Derivation) -> Line:
    model, blocks = found.model, found.model.blocks
    penalties = [model.penalty.xreplace({LAMBDA: b.strength, THETA: sp.Symbol(f"|{b.name}|")}) for b in blocks]
    told: list[str | Math] = []
    for penalty in penalties:
        told += [" + ", _of(penalty)]
    return ("Training. k and v" if model.has_scores else "Training. v", " minimise the sum over N = ",
            Math("alpha D", r"\alpha D"), " sequences of ", _of(model.loss), *told,
            ", and D grows at fixed ", _of(sp.Symbol("alpha")), ".")  # fmt: skip


def _overlaps(found: Derivation) -> Line:
    metric = ", in the metric of Sigma" if found.model.structured else ""
    return ("Order parameters of a block b in k, v: ", Math("m_b = b.b*/D", r"m_b = b\cdot b^*/D"), " (overlap), ",
            Math("q_b = b.b/D", r"q_b = b\cdot b/D"), " (norm), ", Math("V_b", "V_b"), " (response)",
            f"{metric}; their conjugates are ", Math("mh_b, Vh_b, qh_b", r"\hat m_b, \hat V_b, \hat q_b"),
            ".")  # fmt: skip


def _fields(found: Derivation) -> list[Line]:
    has = found.model.has_scores
    w_chi = Math(
        "w_chi,l = m_k chi*_l + sqrt(q_k - m_k^2) xi", r"w^\chi_\ell = m_k \chi^*_\ell + \sqrt{q_k - m_k^2}\,\xi"
    )
    w_z = Math("w_z,l = m_v z*_l + sqrt(q_v - m_v^2) xi", r"w^z_\ell = m_v z^*_\ell + \sqrt{q_v - m_v^2}\,\xi")
    spring_k = Math("|chi - w_chi|^2/(2 V_k) + ", r"\frac{|\chi - w^\chi|^2}{2 V_k} + ") if has else Math("", "")
    over = Math("min over chi, z of ", r"\min_{\chi, z} ") if has else Math("min over z of ", r"\min_{z} ")
    spring = Math("|z - w_z|^2/(2 V_v) + loss", r"\frac{|z - w^z|^2}{2 V_v} + \mathrm{loss}")
    return [
        ("Fields. ", *((w_chi, ", ") if has else ()), w_z, ": score and value of a token under weights that were not "
         "trained on it. An idle token is any but the hidden one; its index is l."),
        ("E is the average over one sequence: its fields, label and length, with the weight g. ",
         Math("M = ", "M = "), over, spring_k, spring, ", its minimiser is the prox, and ",
         Math("G = (prox - w)/V", r"G = (\mathrm{prox} - w)/V"), " is how hard the loss pulls at a field."),
    ]  # fmt: skip


def _trained(found: Derivation) -> list[Line]:
    return [_objective(found), _overlaps(found), *_fields(found)]


def _population(found: Derivation) -> list[Line]:
    return [
        ("The risk is the average of ", _of(found.model.risk), " on a fresh sequence, for given k and v."),
        ("Overlaps: ", Math("m_b = b.b*/D", r"m_b = b\cdot b^*/D"), " and ", Math("q_b = b.b/D", r"q_b = b\cdot b/D"),
         " for b = k, v. A is the average of sigma at the hidden token, B that of the sum over the tokens of ",
         Math("sigma_l^2", r"\sigma_\ell^2"), "."),
    ]  # fmt: skip


def _bayes(found: Derivation) -> list[Line]:
    return [
        ("Estimator. The mean of y given a fresh sequence and N = ", Math("alpha D", r"\alpha D"),
         " sequences with their labels, by the true law of everything: the best possible."),
        ("Overlaps: ", Math("q_b", "q_b"), " is that of b* with its posterior mean, b = k, v, ",
         Math("qh_b", r"\hat q_b"), " its conjugate. Fields ", Math("w_chi, w_z", r"w^\chi, w^z"),
         ": score and value of a token under the posterior mean. Z is the evidence of a label given the fields, ",
         "E the average over one sequence."),
    ]  # fmt: skip


def _dynamics(found: Derivation) -> list[Line]:
    return [
        ("Training. One-pass SGD on ", _of(found.model.loss), " with step sizes ",
         Math("eta_k, eta_v", r"\eta_k, \eta_v"), ", weight decay ",
         Math("lambda_k, lambda_v", r"\lambda_k, \lambda_v"),
         " and B fresh sequences a step; time t is the number of steps over D."),
        ("Overlaps: ", Math("m_b = b.b*/D", r"m_b = b\cdot b^*/D"), ", ", Math("q_b = b.b/D", r"q_b = b\cdot b/D"),
         " for b = k, v, and the cross ones ",
         Math("k.v*/D, v.k*/D, k.v/D", r"k\cdot v^*/D,\ v\cdot k^*/D,\ k\cdot v/D"),
         ". G is minus the slope of the loss in f, ", Math("f_b", "f^b"), " the slopes of f in the tokens' fields of "
         "block b, r = y - f, and ", Math("<a>, <a;b>", r"\langle a\rangle, \langle a;b\rangle"),
         " are mean and covariance given the scores."),
    ]  # fmt: skip


_LEVELS = {"population": _population, "bayes": _bayes, "dynamics": _dynamics}
