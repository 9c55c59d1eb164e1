"""The notation: what every name in a derivation means, and how it is typeset.

`meaning` and `tex` cover the fixed names and, by pattern, the numbered and averaged ones; `builtin` and `text` write
an expression with SymPy's own functions only, so that anyone who has SymPy can read and evaluate it.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Callable, Iterable, Mapping

import sympy as sp
from sympy.printing.str import StrPrinter

from replicode.theory.language.functions import rewritten
from replicode.theory.typeset.printers import Latex, Plain, rows

_NAMES: dict[str, tuple[str, str]] = {
    "alpha": (r"\alpha", "samples per dimension N/D"),
    "nu": (r"\nu", "signal strength"),
    "noise": (r"\Delta", "standard deviation of the label noise"),
    "L": ("L", "number of tokens"),
    "x": ("x", "score of a token at the prox"),
    "w": ("w", "value field w_z of a token"),
    "y": ("y", "label"),
    "w_chi": (r"w^{\chi}", "score field of a token, whose prox is its score x"),
    "L_seq": ("L", "number of tokens of a sequence, drawn from its distribution"),
    "z_star": ("z_{*}", "the teacher's value z* of the hidden token"),
    "S_eps": (r"S_{\varepsilon}", "d log gbar / d mu at the hidden token, gbar = E[g | w], mu = E[chi* | w]"),
    "S_l": (r"S_{\ell}", "d log gbar / d mu at an idle token"),
    "S_y_eps": (
        r"S^{y}_{\varepsilon}",
        "d log Z / d mu of the label's law Z(y, mu) = E[P(y | z*) | w], mu = E[z* | w]",
    ),
    "gain": ("g", "G_z per unit of sigma: minus the slope of the envelope of the loss in U"),
    "f_prox": ("f", "the output at the prox"),
    "stiffness": ("h", "the second derivative of the envelope of the loss in U"),
    **{
        f"R_{a}{b}": (f"R_{{{a}{b}}}", f"average of the squared responses dG_{a}/dw_{b}, summed over pairs of tokens")
        for a, b in ("kk", "kv", "vv")
    },
    **{f"T_{pair}": (f"T_{{{pair}}}", "entry of the de Almeida-Thouless matrix") for pair in ("kk", "kv", "vk", "vv")},
    "replicon": (r"\rho(T)", "spectral radius of T; replica symmetry is stable while it is below one"),
    "t_chi_star": (r"t_{*}", "exponent of chi* in the test weight exp(t chi*), which is its slope S"),
    "t_z_star": (r"t_{*}", "exponent of z* in the test weight exp(t z*), which is its slope S"),
    "ElogZ": (r"\mathbb{E}[\log Z]", "average of the log-evidence of a label and the fields"),
    "dlogZ_k": (r"\partial_{\chi}\log Z", "gradient of log Z in the score fields, all tokens"),
    "dlogZ_v": (r"\partial_{z}\log Z", "gradient of log Z in the value fields, all tokens"),
    "V_y": ("V_y", "variance of the label given the hidden token's value field"),
    "log_gbar": (r"\log\bar g", "log of the weight averaged over chi* given the score field"),
    "log_density": ("t", "log of a token's term in the evidence"),
    "test_risk": (r"\mathcal{R}", "average of (y - estimate)**2 on a fresh sequence"),
    "d": ("d", "gap y - w_z of the hidden token"),
    "w_z": ("w^{z}", "value field of a token"),
    "u_tilt": ("u", "variable of the Laplace integral"),
    "Z_g": ("Z_g", "sum over the locations of the weight"),
    "chi_star": (r"\chi^{*}", "teacher score of the hidden token"),
    "chi_star_eps": (r"\chi^{*}_{\varepsilon}", "teacher score of the hidden token"),
    "chi_star_l": (r"\chi^{*}_{\ell}", "teacher score of token l"),
    "label_noise": (r"\xi", "standard normal noise of the label"),
    "delta_ij": (r"\delta_{ij}", "1 where i = j, else 0"),
    "J_ij": ("J_{ij}", "Jacobian of the inverse map of the prox"),
    "|k|": (r"|k|", "norm of k"),
    "|v|": (r"|v|", "norm of v"),
    "train_loss": (r"\mathcal{L}_{\rm train}", "average of the loss of the residual at the prox"),
    "E": (r"\mathbb{E}", "average over the fields of one sequence"),
    "EM": (r"\mathbb{E}[M]", "average of the Moreau envelope M of the loss"),
    "TokenSum": (r"\sum_\ell", "sum over the tokens, with x and w bound"),
    "Outer": (r"\otimes", "outer product: Outer(a, b) has the entry a at token i times b at token j"),
    "Diagonal": (r"{\rm diag}", "diagonal matrix with the entry of token i"),
    "n_rep": ("n", "number of replicas"),
    "beta_T": (r"\beta", "inverse temperature"),
    "Z_beta": (r"Z_{\beta}", "partition function at inverse temperature beta_T"),
    "dim": ("D", "dimension of the weights"),
    "rs_a": ("a", "coefficient of the identity in a replica-symmetric matrix a I + b J"),
    "rs_b": ("b", "coefficient of the all-ones matrix in a replica-symmetric matrix a I + b J"),
    "rs_c": ("c", "coefficient of the identity in a second replica-symmetric matrix"),
    "rs_d": ("d", "coefficient of the all-ones matrix in a second replica-symmetric matrix"),
    "rs_e": ("e", "coefficient of the blocks of ones in a second matrix of overlaps"),
    "rs_f": ("f", "coefficient of the all-ones matrix in a second matrix of overlaps"),
    "x_rep": ("x", "number of replicas in a block"),
    "y_P": ("y_P", "Parisi parameter beta_T x_rep at zero temperature, conjugate to the energy of a state"),
    "qt0": (r"\tilde q_0", "conjugate of the overlap of two states at finite temperature, beta_T**2 qh0"),
    "qt1": (r"\tilde q_1", "conjugate of the overlap inside a state at finite temperature, beta_T**2 qh1"),
    "d_1": ("d_1", "variance of the noise that tells states apart"),
    "u_0": ("u_0", "y - w in a Gaussian channel without the noise that tells states apart"),
    "EF": (r"\mathbb{E}[F]", "average of F = -(1/y) log E exp(-y M), the inner average over the noise of a state"),
    "EF_value": (r"\mathbb{E}[F]", "average of F = -(1/y) log E exp(-y M)"),
    "EM_tilted": (r"\mathbb{E}\langle M\rangle", "average of M, the noise of a state tilted by exp(-y M)"),
    "df_dy": (r"\partial_{y_P} f", "derivative of the free energy in the Parisi parameter, zero at equilibrium"),
    "complexity": (r"\Sigma", "logarithm of the number of states per dimension"),
    "energy": (r"e", "energy of the states that y selects"),
    "dEF_y_P": (r"\partial_{y}\mathbb{E}[F]", "derivative of the average of F in y"),
    "mt": (r"\tilde m", "conjugate of the teacher overlap at finite temperature, beta_T mh"),
    "qt": (r"\tilde q", "conjugate of the replica overlap at finite temperature, beta_T**2 qh"),
    "Vt": (r"\tilde V", "conjugate of the diagonal overlap at finite temperature, beta_T Vh"),
    "h_var": (r"s_h", "variance mt**2 + qt of the random field h on a weight"),
    "h": ("h", "random field on a weight"),
    "u": ("u", "integration variable"),
    "theta": (r"\theta", "a weight, integrated over"),
    "V": ("V", "beta_T (diagonal - off-diagonal) of a Gaussian channel's overlaps"),
    "d_w": ("d", "variance of y - w in a Gaussian channel"),
    "u_w": (r"u", "y - w in a Gaussian channel"),
    "z": ("z", "residual y - value in a Gaussian channel"),
    "sigma_w": (r"(\sigma\!\cdot\!w)", "token sum of sigma_l w_l"),
    "sigma_sigma": (r"(\sigma\!\cdot\!\sigma)", "token sum of sigma_l**2"),
    "a_z": ("a", "amplitude of z = w_z + a_z sigma"),
    "prox": (r"{\rm prox}", "a score or value at the prox, held fixed"),
    "field_w": ("w", "the field whose prox it is"),
    "t_shift": ("t", "common shift of all scores"),
    "A": ("A", "average of sigma at the hidden token"),
    "B": ("B", "average of the token sum of sigma**2"),
    "owens_t": ("T", "Owen's T function: owens_t(h, a) = int_0^a exp(-h^2 (1 + t^2)/2)/(1 + t^2) dt/(2 pi)"),
    "bivariate_normal_cdf": (r"\Phi_2", "probability that two standard normals of correlation rho are below h and k"),
    "chi_eps": (r"\chi_{\varepsilon}", "score of the hidden token"),
    "chi_l": (r"\chi_{\ell}", "score of an idle token"),
    "sigma_eps": (r"\sigma_{\varepsilon}", "activation at the hidden token"),
    "sigma_l": (r"\sigma_{\ell}", "activation at an idle token"),
    "bias_idle": (r"b_{\rm idle}", "what the idle tokens' scores add to the estimate"),
    "k_vstar": (r"(k\!\cdot\!v^{*})", "cross overlap k.v*/D"),
    "v_kstar": (r"(v\!\cdot\!k^{*})", "cross overlap v.k*/D"),
    "k_v": (r"(k\!\cdot\!v)", "cross overlap k.v/D"),
    "f": ("f", "output of the student"),
    "r": ("r", "residual y - f"),
    "G": ("G", "minus the slope of the loss in the output"),
    "batch": ("B", "sequences per step"),
    "eta_k": (r"\eta_{k}", "step size of k"),
    "eta_v": (r"\eta_{v}", "step size of v"),
    "dir_a": ("a", "a coordinate of one direction"),
    "dir_b": ("b", "a coordinate of another direction"),
    "step_a": (r"\delta_a", "what a step adds to it"),
    "step_b": (r"\delta_b", "what a step adds to the other"),
    "chi": (r"\chi", "score of a token under the student"),
    "mean_i": (r"{\rm mean}_i", "mean over the coordinates of the tokens' covariance"),
    "t_y": (r"t_{y}", "exponent of the label in the test function exp(t.w)"),
}
_BLOCK = {"k": "the scores' weights k", "v": "the values' weights v"}
_FIELD = {"chi": "score", "z": "value"}
_FIELD_TEX = {"chi": r"\chi", "z": "z"}
_TOKEN = {"eps": "the hidden token", "l": "an idle token"}
_TOKEN_TEX = {"eps": r"\varepsilon", "l": r"\ell"}
_REPLICA = {"0": "of the teacher", "a": "of replica a", "b": "of replica b"}

_OVERLAPS = {
    "m": ("m_{%s}", "overlap with the teacher of "),
    "q": ("q_{%s}", "overlap between replicas, or squared norm per dimension, of "),
    "V": ("V_{%s}", "beta (diagonal - off-diagonal) of the overlaps of "),
    "mh": (r"\hat m_{%s}", "conjugate of m for "),
    "qh": (r"\hat q_{%s}", "conjugate of V for "),
    "Vh": (r"\hat V_{%s}", "conjugate of q for "),
    "q0": ("q_{0,%s}", "overlap between two states of "),
    "q1": ("q_{1,%s}", "overlap inside a state, or squared norm per dimension, of "),
    "qh0": (r"\hat q_{0,%s}", "conjugate of q0 for "),
    "qh1": (r"\hat q_{1,%s}", "conjugate of V at one step of breaking for "),
    "G2": (r"\langle |G|^2\rangle_{%s}", "average of the squared gains, the noise of a state tilted, of "),
    "lambda": (r"\lambda_{%s}", "ridge of "),
    "dEM_m": (r"\partial_{m_{%s}}\mathbb{E}[M]", "derivative of the average of M in m of "),
    "dEM_q": (r"\partial_{q_{%s}}\mathbb{E}[M]", "derivative of the average of M in q of "),
    "dEM_V": (r"\partial_{V_{%s}}\mathbb{E}[M]", "derivative of the average of M in V of "),
}
_STATES = {"within": "of G within a state", "between": "of the tilted average of G between states"}
_NUMBERED = {
    "x": ("x_{%s}", "score at the prox, token "),
    "w": ("w_{%s}", "value field w_z, token "),
    "z": ("z_{%s}", "value, token "),
    "w_chi": (r"w^{\chi}_{%s}", "score field, token "),
    "sigma": (r"\sigma_{%s}", "activation, token "),
    "H": ("H_{%s}", "second derivative of the loss in the scores, tokens "),
    "C": ("C_{%s}", "second derivative of the loss in a score and a value field, tokens "),
    "E": ("E_{%s}", "second derivative of the loss in the value fields, tokens "),
    "A_L": ("A_{L=%s}", "A where the number of tokens is "),
    "B_L": ("B_{L=%s}", "B where the number of tokens is "),
}


def _of(
    table: Mapping[str, tuple[str, str]], words: Mapping[str, str] | None = None, signs: Mapping[str, str] | None = None
) -> Callable[[str, str], tuple[str, str]]:
    """The entry of a name in a table for what it belongs to, which is told and typeset as it is called or otherwise."""

    def entry(name: str, of: str) -> tuple[str, str]:
        shown, said = table[name]
        return shown % (signs or {}).get(of, of), said + (words or {}).get(of, of)

    return entry


def _field(kind: str, field: str, token: str) -> tuple[str, str]:
    words = {
        "w": f"{_FIELD[field]} field of {_TOKEN[token]}",
        "G": f"(prox - w)/V of the {_FIELD[field]} field of {_TOKEN[token]}, minus the derivative of M",
        "t": f"exponent of the {_FIELD[field]} field of {_TOKEN[token]} in the test function exp(t.w)",
    }
    return rf"{kind}^{{{_FIELD_TEX[field]}}}_{{{_TOKEN_TEX[token]}}}", words[kind]


def _tilted(field: str, token: str) -> tuple[str, str]:
    shown, words = _field("G", field, token)
    return rf"\langle {shown}\rangle", f"tilted average over the noise of a state of {words}"


def _response(kind: str, states: str, pair: str) -> tuple[str, str]:
    words = {"R": "average of the squared responses ", "T": "entry of the de Almeida-Thouless matrix "}
    return rf"{kind}^{{\rm {states}}}_{{{pair}}}", words[kind] + _STATES[states]


def _state(letter: str, number: str) -> tuple[str, str]:
    words = {"M": "value of M at ", "p": "chance of ", "G": "value of G at ", "t": "exponent of test function "}
    return f"{letter}_{{{number}}}", words[letter] + ("" if letter == "t" else "noise ") + number


def _source(name: str, replica: str) -> tuple[str, str]:
    words = {"theta": "coordinate of the weights ", "s": "source that multiplies the field "}
    letter = r"\theta" if name == "theta" else name
    return f"{letter}_{{{'*' if replica == '0' else replica}}}", words[name] + _REPLICA[replica]


def _factors(product: str) -> list[tuple[str, str]]:
    """The factors of a named product, each with its power."""
    parts = [part.rpartition("_pow_") for part in product.split("__")]
    return [(base, power) if base else (power, "") for base, _, power in parts]


def _averaged(factors: str) -> tuple[str, str]:
    shown = _factors(factors)
    words = "*".join(f"{base}**{power}" if power else base for base, power in shown)
    inside = r"\,".join("{" + tex(base) + "}" + (f"^{{{power}}}" if power else "") for base, power in shown)
    return rf"\langle {inside}\rangle", f"average of {words}"


def _rate(function: str, variables: str) -> tuple[str, str]:
    by = variables.split(", ")
    order = f"^{{{len(by)}}}" if len(by) > 1 else ""
    below = r"\,".join(rf"\partial {tex(v)}" for v in by)
    return rf"\frac{{\partial{order} {tex(function)}}}{{{below}}}", f"derivative of {function} in {variables}"


def _abbreviation(letter: str, number: str) -> tuple[str, str]:
    return f"{letter}_{{{number}}}", "abbreviation, given with the step"


def _staged(name: str, number: str, token: str | None) -> tuple[str, str]:
    return (
        rf"{{\rm {name}}}_{{{number}{f',{token}' if token else ''}}}",
        "token sum, scalar or token vector, defined beside the Jacobian of the prox",
    )


_STUDENT_FIELD = {"kstar": r"\chi^{*}", "vstar": "z^{*}", "k": r"\chi", "v": "z"}
_CONDITIONAL = {"r": "r", "f_l": r"f_\ell", "f_j": "f_j", "h_l": r"h_\ell"}


def _pull(block: str, along: str) -> tuple[str, str]:
    shown = rf"\mathbb{{E}}[G\, f^{{{block}}}\!\cdot {_STUDENT_FIELD[along]}]"
    return shown, f"average of G times the slopes of f in the fields of {block}, times the fields of {along}"


def _spread(one: str, two: str) -> tuple[str, str]:
    words = f"average of G^2 times the slopes of f in the fields of {one} and of {two}, over the tokens"
    return rf"\mathbb{{E}}[G^2 f^{{{one}}}\!\cdot f^{{{two}}}]", words


def _conditional_mean(name: str) -> tuple[str, str]:
    return rf"\langle {_CONDITIONAL[name]}\rangle", f"mean of {name} given the scores"


def _conditional_covariance(one: str, two: str) -> tuple[str, str]:
    shown = rf"\langle {_CONDITIONAL[one]};{_CONDITIONAL[two]}\rangle"
    return shown, f"covariance of {one} and {two} given the scores"


def _loading(variable: str, normal: str) -> tuple[str, str]:
    return rf"c_{{{variable}{normal}}}", f"coefficient of normal {normal} in variable {variable}"


_COORDINATE = {
    "s": ("s_{%s}", "eigenvalue of the tokens' covariance, coordinate "),
    "p": ("p_{%s}", "weight of the penalty, one unless given, coordinate "),
}


def _teacher_square(block: str, number: str) -> tuple[str, str]:
    words = f"square of the teacher's whitened weight, D t_i, for {_BLOCK[block]}, coordinate {number}"
    return f"c^{{{block}}}_{{{number}}}", words


def _spectral(name: str, block: str) -> tuple[str, str]:
    words = {
        "tau": "mean of s_i/(lambda p_i + Vh s_i)",
        "kappa": "the same mean weighed by the teacher, c_i",
        "psi": "mean of (c_i qh - log(1 + c_i qh))/2, what the teacher adds to the free entropy",
    }
    return rf"\{name}_{{{block}}}", f"{words[name]}, for {_BLOCK[block]}"


_PATTERNS: tuple[tuple[re.Pattern[str], Callable[..., tuple[str, str]]], ...] = (
    (re.compile(r"pull_([kv])_(kstar|vstar|k|v)"), _pull),
    (re.compile(r"spread_([kv])([kv])"), _spread),
    (re.compile(r"mean_(r|f_l|f_j|h_l)"), _conditional_mean),
    (re.compile(r"cov_(r|f_l|f_j|h_l)__(r|f_l|f_j|h_l)"), _conditional_covariance),
    (re.compile(r"load_(\d)(\d)"), _loading),
    (re.compile(r"diff\((F_\d+), (.+)\)"), _rate),
    (re.compile(r"([FPQT])_(\d+)"), _abbreviation),
    (re.compile(r"(S|K|A|B|ax|bx|aw|bw)_(\d+)(?:_([ij]))?"), _staged),
    (re.compile(rf"({'|'.join(sorted(_OVERLAPS, key=len, reverse=True))})_([kv])"), _of(_OVERLAPS, words=_BLOCK)),
    (re.compile(r"(w_chi|sigma|A_L|B_L|x|w|z|H|C|E)_(\d+)"), _of(_NUMBERED)),
    (re.compile(r"(w_chi|sigma|x|w)_([lij])"), _of(_NUMBERED, signs={"l": r"\ell"})),
    (re.compile(r"([wGt])_(chi|z)_(eps|l)"), _field),
    (re.compile(r"(theta|s)_([0ab])"), _source),
    (re.compile(r"([sp])_(\d+|i)"), _of(_COORDINATE)),
    (re.compile(r"c_([kv])_(\d+|i)"), _teacher_square),
    (re.compile(r"(tau|kappa|psi)_([kv])"), _spectral),
    (re.compile(r"G_(chi|z)_(eps|l)_tilted"), _tilted),
    (re.compile(r"(T)_(within|between)_([kv]{2})"), _response),
    (re.compile(r"R_([kv]{2})_(within|between)"), lambda pair, states: _response("R", states, pair)),
    (re.compile(r"([MpGt])_([12])"), _state),
    (re.compile(r"avg_(.+)"), _averaged),
)


def _entry(name: str) -> tuple[str, str] | None:
    if name in _NAMES:
        return _NAMES[name]
    for pattern, entry in _PATTERNS:
        if match := pattern.fullmatch(name):
            return entry(*match.groups())
    return None


def meaning(name: str) -> str | None:
    """What a name means; None for one that is not of the notation, such as an activation's parameter."""
    entry = _entry(name)
    return entry[1] if entry else None


def tex(name: str) -> str:
    """How a name is typeset."""
    entry = _entry(name)
    return entry[0] if entry else str(sp.latex(sp.Symbol(name)))


_SPOKEN = {
    **{"n_rep": "n", "beta_T": "beta", "dim": "D", "L_seq": "L", "x_rep": "x", "u_tilt": "u"},
    **{f"rs_{letter}": letter for letter in "abcdef"},
    **{"sigma_w": "(sigma.w_z)", "sigma_sigma": "(sigma.sigma)", "label_noise": "xi", "chi_star": "chi*"},
    **{"chi_star_eps": "chi*_eps", "chi_star_l": "chi*_l"},
    **{"z_star": "z*", "k_vstar": "(k.v*/D)", "v_kstar": "(v.k*/D)", "k_v": "(k.v/D)", "ElogZ": "E[log Z]"},
    **{"EM_tilted": "E<M>", "EF_value": "E[F]", "EM": "E[M]", "EF": "E[F]", "theta_0": "theta*", "batch": "B"},
    **{"dlogZ_k": "|dlogZ/dw_chi|", "dlogZ_v": "|dlogZ/dw_z|", "df_dy": "df/dy_P", "replicon": "rho(T)"},
    **{"dir_a": "a", "dir_b": "b", "step_a": "delta_a", "step_b": "delta_b"},
}
_SPOKEN_FIELD = {"kstar": "chi*", "vstar": "z*", "k": "chi", "v": "z"}
_SPOKEN_PATTERNS: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (re.compile(r"avg_(.+)"), lambda factors: f"<{_spoken_factors(factors)}>"),
    (re.compile(r"dEM_(.+)"), lambda by: f"dE[M]/d{by}"),
    (re.compile(r"G2_([kv])"), lambda block: f"<|G_{block}|^2>"),
    (re.compile(r"(G_.+)_tilted"), lambda name: f"<{name}>"),
    (re.compile(r"pull_([kv])_(kstar|vstar|k|v)"), lambda block, along: f"E[G f_{block}.{_SPOKEN_FIELD[along]}]"),
    (re.compile(r"spread_([kv])([kv])"), lambda one, two: f"E[G^2 f_{one}.f_{two}]"),
    (re.compile(r"mean_(r|f_l|f_j|h_l)"), lambda name: f"<{name}>"),
    (re.compile(r"cov_(r|f_l|f_j|h_l)__(r|f_l|f_j|h_l)"), lambda one, two: f"<{one};{two}>"),
    (re.compile(r"d_([mq]_[kv]|[kv]_[kv]star|k_v)"), lambda name: f"d{spoken(name)}/dt"),
    (re.compile(r"spherical_(d_.+)"), lambda name: f"{spoken(name)}, norms kept,"),
    (re.compile(r"diff\((F_\d+), (.+)\)"), lambda name, by: _spoken_rate(name, by.split(", "))),
)


def spoken(name: str) -> str:
    """A name as text shows it: its own, but for those that only tell SymPy's symbols apart."""
    for pattern, shown in _SPOKEN_PATTERNS:
        if match := pattern.fullmatch(name):
            return shown(*match.groups())
    return _SPOKEN.get(name, name)


def _spoken_factors(factors: str) -> str:
    return " ".join(f"{spoken(base)}^{power}" if power else spoken(base) for base, power in _factors(factors))


def _spoken_rate(name: str, by: list[str]) -> str:
    below = " ".join(f"d{spoken(v)}" for v in by)
    return f"d^{len(by)}{name}/({below})" if len(by) > 1 else f"d{name}/{below}"


def average(factors: Iterable[tuple[sp.Symbol, int]]) -> sp.Symbol:
    """The symbol that names the average of a product of powers of fields."""
    parts = [s.name if power == 1 else f"{s.name}_pow_{power}" for s, power in factors]
    return sp.Symbol("avg_" + "__".join(parts), real=True)


def is_plain(name: str) -> bool:
    """Whether SymPy reads the name as a symbol, and not as something of its own or of Python's."""
    return not (hasattr(sp, name) or hasattr(builtins, name) or keyword.iskeyword(name) or keyword.issoftkeyword(name))


def parameter_symbols(parameters: Iterable[str]) -> dict[sp.Symbol, sp.Symbol]:
    """New names for parameters that SymPy or the notation would take for something else."""
    clashes = [p for p in parameters if not is_plain(p) or _entry(p)]
    return {sp.Symbol(p, real=True): sp.Symbol(f"{p}_par", real=True) for p in clashes}


def builtin(expr: sp.Expr) -> sp.Expr:
    """The expression without functions of our own; what lives on a kink only is dropped."""
    expr = rewritten(expr, "builtin")
    return expr.replace(sp.DiracDelta, lambda *_: sp.S.Zero) if expr.has(sp.DiracDelta) else expr


def _without_jumps(expr: sp.Expr) -> sp.Expr:
    """Max(u, 0) and its step by the modulus, which prints as a root: derivatives then leave nothing on the kink."""
    kinked = expr.replace(sp.Heaviside, lambda u, *_: (1 + sp.sign(u)) / 2)
    return kinked.replace(sp.Max, lambda *u: (sp.Add(*u) + sp.Abs(u[0] - u[1])) / 2)


class _Text(StrPrinter):
    """SymPy syntax that evaluates without assumptions on the symbols, derivatives carried out on reading."""

    def _print_Derivative(self, expr: sp.Derivative) -> str:
        variables = ", ".join(self._print(v) for v, count in expr.variable_count for _ in range(int(count)))
        return f"diff({self._print(_without_jumps(expr.expr))}, {variables})"

    def _print_Abs(self, expr: sp.Abs) -> str:
        return f"sqrt(({self._print(expr.args[0])})**2)"

    def _print_sign(self, expr: sp.sign) -> str:
        inside = self._print(expr.args[0])
        return f"(sqrt(({inside})**2)/({inside}))"


def text(expr: sp.Expr) -> str:
    """The expression as `sympy.sympify` reads it, to the same number at every point."""
    return str(_Text().doprint(expr))


_TEX = Latex(tex)
_PLAIN = Plain(spoken)


def latex(expr: sp.Expr) -> str:
    """The expression in LaTeX."""
    return str(_TEX.doprint(expr))


def plain(expr: sp.Expr) -> str:
    """The expression in text that people read, such as `alpha (L - 1) E[G^2]`."""
    return str(_PLAIN.doprint(expr))


def latex_rows(expr: sp.Expr, first: int, most: int) -> list[str]:
    """The expression in LaTeX, in lines of at most `most` characters, the first one shorter by `first`."""
    return rows(_TEX, expr, first, most)
