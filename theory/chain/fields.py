"""The law of the fields at the hidden token: a Gaussian weight put into it, or the teacher's score kept beside it."""

from __future__ import annotations

import sympy as sp

from replicode.theory.derive.replica import Step
from replicode.theory.derive.saddle import SaddleSystem, given_fields
from replicode.theory.gaussian.laws import FieldLaw
from replicode.theory.language.nodes import X
from replicode.theory.language.task import Task
from replicode.theory.model import Model, Y


def weight(task: Task, law: FieldLaw, model: Model) -> list[Step]:
    """What the weight of a task that leaves the scores Gaussian does to the hidden token's."""
    mean, variance = task.hidden_score()
    star, m, q = model.scores.teacher, model.scores.m, model.scores.q
    weight = task.log_weight.xreplace({X: star})
    i = law.fields.index(model.hidden.w[model.scores.name])
    return [
        Step(
            "the task's weight g times the base law N(0, 1) of the hidden token's teacher score: completing the square",
            weight - star**2 / 2,
            weight.subs(star, 0) + mean**2 / (2 * variance) - (star - mean) ** 2 / (2 * variance),
        ),
        Step(
            "w_chi = m_k chi* + sqrt(q_k - m_k^2) xi: its second moment at the hidden token",
            (q - m**2) + m**2 * (mean**2 + variance),
            law.covariance[i, i] + law.mean[i] ** 2,
        ),
    ]


def _location(law: FieldLaw, model: Model) -> list[Step]:
    """What is known of chi* given w, and what the scores of the joint law become when chi* is averaged over."""
    star, w, s = model.scores.teacher, model.hidden.w[model.scores.name], model.hidden.slopes[model.scores.name]
    tilt, total = sp.Symbol("u_tilt", positive=True), sp.Symbol("Z_g", positive=True)
    conditional = law.marginal(star, w).given(w)
    mean, variance = conditional.mean[0], conditional.covariance[0, 0]
    joint = law.marginal(star, w).covariance
    scores = joint.inv() * sp.Matrix([star, w])
    averaged_scores = [given_fields(e, law, model.hidden, model) for e in scores]
    return [
        Step(
            "a weight normalised over the locations is a Laplace integral, in which the tokens factorise",
            sp.Integral(sp.exp(-tilt * total), (tilt, 0, sp.oo)),
            1 / total,
        ),
        Step(
            "given w, the teacher's score chi* is Gaussian: its variance, by the determinant of the joint law",
            variance,
            joint.det() / joint[1, 1],
        ),
        *[
            Step(
                f"Stein's lemma in that law, E[chi* g | w] = (mu + s^2 S) gbar: the score of {name} averaged over chi*",
                score.subs(star, mean + variance * s),
                found,
            )
            for name, score, found in zip(("chi*", "w_chi"), scores, averaged_scores, strict=True)
        ],
    ]


def law(system: SaddleSystem) -> list[Step]:
    """The law of (w_chi, w_z, y) at the hidden token."""
    law, model = system.joint_laws[0], system.model
    w = model.hidden.w[model.values.name]
    centred = sp.Matrix(law.fields) - law.mean
    balanced = law.covariance * sp.Matrix(law.score())
    return [
        *(_scores(system, law) if model.has_scores else []),
        *(_label(law, model) if system.label.weighted else _given_label(system, law, w)),
        *[
            Step(
                f"the score C^-1 (fields - mean) that Stein's lemma needs, row of {field.name}",
                balanced[i],
                centred[i],
            )
            for i, field in enumerate(law.fields)
        ],
    ]


def _scores(system: SaddleSystem, law: FieldLaw) -> list[Step]:
    model = system.model
    return _location(law, model) if system.location.weighted else weight(system.task, law, model)


def _given_label(system: SaddleSystem, law: FieldLaw, w: sp.Symbol) -> list[Step]:
    """What y says of the value field."""
    given = system.hidden_law.given(Y)
    return [
        Step(
            "the conditional law of w_z at the hidden token given y: its variance is the inverse of an entry of C^-1",
            given.covariance[given.fields.index(w), given.fields.index(w)],
            1 / law.covariance.inv()[law.fields.index(w), law.fields.index(w)],
        )
    ]


def _label(law: FieldLaw, model: Model) -> list[Step]:
    """What is known of z* given w, of which the label is told."""
    star, w = model.values.teacher, model.hidden.w[model.values.name]
    joint = law.marginal(star, w)
    scores = joint.covariance.inv() * sp.Matrix([star, w])
    conditional = joint.given(w)
    mean, variance, slope = conditional.mean[0], conditional.covariance[0, 0], model.hidden.slopes[model.values.name]
    return [
        Step(
            f"Stein's lemma in the law of z* given w, E[z* P(y | z*) | w] = (mu + s^2 S) Z(y, mu): the score of {name} "
            "averaged over z*",
            score.subs(star, mean + variance * slope),
            given_fields(score, joint, model.hidden, model),
        )
        for name, score in zip(("z*", "w_z"), scores, strict=True)
    ]
