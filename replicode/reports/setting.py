"""The model, stated once, and the table of symbols."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from replicode.reports.mathematics import Equation, inline

_NAME = re.compile(r"[A-Za-z_]\w*")
_LAWS = {
    "spiked": (r"\exp(\sqrt{\nu}\,\chi^{*}_{\varepsilon} - \nu/2)", "exp(sqrt(nu) chi*_eps - nu/2)"),
    "max": (
        r"L\,e^{\nu \chi^{*}_{\varepsilon}} / \sum_{\ell} e^{\nu \chi^{*}_{\ell}}",
        "L exp(nu chi*_eps) / sum over l of exp(nu chi*_l)",
    ),
}


def model_statement(asked: Mapping[str, Any]) -> str:
    """Data, estimator, training and what is reported, in a few sentences."""
    task = str(asked["task"])
    law = _m(*_LAWS[task]) if task in _LAWS else f"the exponential of <code>{escape(task)}</code>, normalised"
    k, v = _m("k^{*}", "k*"), _m("v^{*}", "v*")
    score, value = _m(r"\chi = X k/\sqrt{D}", "chi = X k/sqrt(D)"), _m(r"z = X v/\sqrt{D}", "z = X v/sqrt(D)")
    label = _m(r"y = X_{\varepsilon} \cdot v^{*}/\sqrt{D} + \Delta\,\xi", "y = X_eps . v*/sqrt(D) + Delta xi")
    output = _m(r"f(X) = \sigma(\chi)^{T} z", "f(X) = sigma(chi)^T z")
    objective = " ".join(
        [
            _m(r"\sum_{\mu} (y_{\mu} - f(X_{\mu}))^{2}/2", "sum over mu of (y - f)^2/2"),
            _m(r"{} + \lambda_{k} \left|k\right|^{2}/2", "+ lambda_k |k|^2/2"),
            _m(r"{} + \lambda_{v} \left|v\right|^{2}/2", "+ lambda_v |v|^2/2"),
        ]
    )
    overlaps = ", ".join(
        [
            _m(r"m_{k} = k \cdot k^{*}/D", "m_k = k.k*/D"),
            _m(r"q_{k} = \left|k\right|^{2}/D", "q_k = |k|^2/D"),
            _m(r"m_{v} = v \cdot v^{*}/D", "m_v = v.v*/D"),
            _m(r"q_{v} = \left|v\right|^{2}/D", "q_v = |v|^2/D"),
        ]
    )
    hidden, scores, sigma = _m(r"\varepsilon", "eps"), _m(r"\chi^{*}", "chi*"), _m(r"\sigma", "sigma")
    many, risk = _m(r"N = \alpha D", "N = alpha D"), _m(r"\mathbb{E} (y - f)^{2}", "E (y - f)^2")
    rows = {
        "Data": f"A sequence {_m('X', 'X')} has {_m('L', 'L')} tokens in dimension {_m('D', 'D')}, normal and "
        f"independent, reweighted by {law}: {scores} are the scores of a hidden direction {k}, {hidden} is the hidden "
        "token.",
        "Label": f"{label}: the value of the hidden token along {v}, with noise.",
        "Estimator": f"{output}, with scores {score} and values {value}; {sigma} is the activation.",
        "Training": f"{objective} is minimised over {many} sequences.",
        "Overlaps": f"{overlaps}; {_m('V', 'V')} is the response, and a hat marks a conjugate.",
        "Test risk": f"{risk} on a fresh sequence.",
    }
    items = "".join(f"<dt>{name}</dt><dd>{words}</dd>" for name, words in rows.items())
    return f'<dl class="model">{items}</dl>'


def _m(latex: str, text: str) -> str:
    return inline(latex, text)


def symbols(equations: Iterable[Equation], parameters: Sequence[str]) -> list[tuple[str, str]]:
    """Every name in the equations that the notation explains, typeset, with its meaning."""
    from replicode.theory.typeset.notation import meaning, tex

    names = dict.fromkeys(n for e in equations for n in _NAME.findall(e.text))
    told = {n: "parameter of the activation" if n in parameters else meaning(n) for n in names}
    return [(inline(tex(n), n), words) for n, words in told.items() if words]
