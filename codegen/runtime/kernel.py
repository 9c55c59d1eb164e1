"""The seam between the run-time and what is derived: the linker puts the functions of a system in the place of these.

Arrays have the tokens along axis 0 and the samples along axis 1; the hidden token is token 0. `order` is the vector of
the order parameters, named by ORDER_NAMES, in which M_K is the place of m_k and so on; `conjugates` is that of the
conjugates. What stands here is the theory of nothing at all: fields of unit variance, no loss and no rates. Signatures
are those of the derived functions, except that the slopes of the location's weight, where it has one, are a last
argument `s_chi`, and those of the label's law, where it is no Gaussian field, one more, `s_z`. Where it is none, the
moments of the label are last arguments too. The means over the coordinates of structured tokens are a last argument
`traces`, and the radii of the tokens, where these have any, one of the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

METADATA: dict[str, Any] = {"activation": "", "task": ""}
PARAMETERS: tuple[str, ...] = ()
DEFAULTS: dict[str, float] = {}
SHIFT_INVARIANT: bool = False
ELEMENTWISE: bool = False
EVEN_LOSS: bool = True
MOMENTS: int = 0
LOCATION: str = "gaussian"
LABEL_NORMALS: int = 0
LABEL_VALUES: tuple[float, ...] = ()
LABEL_BRANCHES: int = 1
LABEL_COPIES: float = 1.0
LABEL_KINKS: tuple[float, ...] = ()  # in z*
ONE_SIDED: bool = False  # two sets of nodes may err to the same side: errors fall with a power of their number
HARD_LIMIT: int = 0
ORDER_NAMES: tuple[str, ...] = ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v")
CONJUGATE_NAMES: tuple[str, ...] = ("mh_k", "qh_k", "Vh_k", "mh_v", "qh_v", "Vh_v")
M_K, Q_K, V_K, M_V, Q_V, V_V = (ORDER_NAMES.index(name) for name in ("m_k", "q_k", "V_k", "m_v", "q_v", "V_v"))
VH_K: int = CONJUGATE_NAMES.index("Vh_k")


NOT_DERIVED: Any = None
Factors = tuple[Array, tuple[Array, ...], tuple[Array, ...]]  # a diagonal, and both sides of outer products


class LengthKernels(NamedTuple):
    """The kernels of sequences of `tokens` tokens, which `share` of all sequences have.

    A level derives those that it needs. The factors are the same matrices as diagonals plus outer products, of many
    tokens. `newton` and `node_sums` are compiled loops for those of `prox` and of the prox-free averages, where there
    are any.
    """

    tokens: int
    share: float
    row_sum: Callable[[Array], float | None]
    sigma: Callable[[Array, Array], Array]
    pullback: Callable[[Array, Array, Array], Array] = NOT_DERIVED
    loss: Callable[..., Array] = NOT_DERIVED
    gradient: Callable[..., tuple[Array, Array, Array, Array, Array]] = NOT_DERIVED
    hessian: Callable[..., tuple[Array, Array, Array]] = NOT_DERIVED
    expansion: Callable[..., tuple[Any, ...]] = NOT_DERIVED
    curvatures: Callable[..., tuple[Array, Array, Array]] = NOT_DERIVED
    hessian_factors: Callable[..., tuple[Array, Array, Factors]] | None = None
    curvature_factors: Callable[..., tuple[Factors, Factors, Factors]] | None = None
    newton: Callable[..., int] | None = None
    node_sums: Callable[..., Array] | None = None


def row_sum(params: Array) -> float | None:
    """sum_l sigma_l, or None where it depends on the scores."""
    return 0.0


def sigma(x: Array, params: Array) -> Array:
    """The activation."""
    return np.zeros_like(x)


def pullback(x: Array, w: Array, params: Array) -> Array:
    """sum_l w_l d sigma_l / d x_j."""
    return np.zeros_like(x)


def loss(x: Array, w: Array, y: Array, V_v: float, params: Array, *radii: Array) -> Array:
    """The loss with z eliminated."""
    return np.zeros_like(y)


def gradient(
    x: Array, w: Array, y: Array, V_v: float, params: Array, *radii: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Loss, its slope in chi, sigma, the gain G_z = gain sigma, and the residual's own loss."""
    return np.zeros_like(y), np.zeros_like(x), np.zeros_like(x), np.zeros_like(y), np.zeros_like(y)


def hessian(x: Array, w: Array, y: Array, V_v: float, params: Array, *radii: Array) -> tuple[Array, Array, Array]:
    """Loss, slope and Hessian in chi."""
    return np.zeros_like(y), np.zeros_like(x), np.zeros((len(x), *x.shape))


def expansion(x: Array, w: Array, y: Array, V_v: float, params: Array, *radii: Array) -> tuple[Any, ...]:
    """All of `gradient` and the Hessian in chi, at once."""
    return (*gradient(x, w, y, V_v, params), [np.zeros((len(x) - i, y.size)) for i in range(len(x))])


def curvatures(x: Array, w: Array, y: Array, V_v: float, params: Array, *radii: Array) -> tuple[Array, Array, Array]:
    """Second derivatives of the loss in (chi, chi), (chi, w_z), (w_z, w_z)."""
    return np.zeros((len(x), *x.shape)), np.zeros((len(x), *x.shape)), np.zeros((len(x), *x.shape))


def hessian_factors(
    x: Array, w: Array, y: Array, V_v: float, params: Array, *radii: Array
) -> tuple[Array, Array, Factors]:
    """Loss, slope and Hessian in chi, as a diagonal plus outer products."""
    return np.zeros_like(y), np.zeros_like(x), (np.zeros_like(x), (), ())


def curvature_factors(
    x: Array, w: Array, y: Array, V_v: float, params: Array, *radii: Array
) -> tuple[Factors, Factors, Factors]:
    """Second derivatives of the loss as diagonals plus outer products."""
    return ((np.zeros_like(x), (), ()),) * 3


KERNELS: tuple[LengthKernels, ...] = (
    LengthKernels(1, 1.0, row_sum, sigma, pullback, loss, gradient, hessian, expansion, curvatures),
)


def own_log_weight(x: Array, nu: float) -> Array:
    """The hidden token's own log-weight, where that is not in the law of the fields."""
    return np.zeros_like(x)


def own_slope(x: Array, nu: float) -> Array:
    """Its slope in the score."""
    return np.zeros_like(x)


def ranking_slope(nu: float) -> float:
    """The slope of a log-weight that is linear in the score."""
    return 0.0


def label_lines(noise: float) -> Array:
    """A label on lines: of each branch the a, b, c of a z* + b + c noise, and its chance.

    Of a label that takes few values: of each value the a, b, c of what is positive where the label has it.
    """
    return np.array([[1.0, 0.0, noise, 1.0]])


def label_chances(x: Array, noise: float) -> tuple[Array, ...]:
    """The logarithms of the chances of each value of the label at z* = x."""
    return (np.zeros_like(x),)


def label_samples(x: Array, xi: Array, noise: float) -> tuple[Array, ...]:
    """The label at z* = x and its noise xi, and the chance of it, branch by branch."""
    return x, np.ones_like(x)


def loss_value(y: Array, f: Array) -> Array:
    """The loss itself."""
    return np.zeros_like(f)


def loss_slopes(y: Array, f: Array) -> tuple[Array, ...]:
    """Its first two derivatives in the output f."""
    return np.zeros_like(f), np.zeros_like(f)


def hidden_law(order: Array, nu: float, noise: float) -> tuple[Array, Array]:
    """Mean and covariance of (w_chi, w_z, y) at the hidden token."""
    return np.zeros(3), np.eye(3)


def idle_law(order: Array, nu: float = 0.0, noise: float = 0.0) -> tuple[Array, Array]:
    """Mean and covariance of (w_chi, w_z) at an idle token."""
    return np.zeros(2), np.eye(2)


def channel_rates(
    order: Array, nu: float, noise: float, w_chi: Array, w_z: Array, y: Array, g_chi: Array, g_z: Array, *slopes: Array
) -> tuple[Array | float, ...]:
    """Integrands of dE[M]/d(order parameters), by Price and Stein."""
    return tuple(np.zeros_like(order))


def channel_moments(
    weights: Array,
    d_chi: Array,
    w_z: Array,
    y: Array,
    g_chi: Sequence[Array],
    g_z: Sequence[Array],
    *slopes: Array,
) -> Array:
    """Weighted sums of products of the fields, given as rows; d_chi is w_chi less its mean."""
    return np.zeros(MOMENTS)


def rates_from_moments(order: Array, nu: float, noise: float, moments: Array) -> Array:
    """Averages of `channel_rates`."""
    return np.zeros_like(order)


def conjugates_from_rates(rates: Array, alpha: float) -> Array:
    """Conjugates at which f is stationary in m, q, V."""
    return np.zeros_like(rates)


def prior_update(conjugates: Array, lambda_k: float, lambda_v: float, *traces: Array) -> Array:
    """Order parameters at which f is stationary in the conjugates."""
    return np.zeros_like(conjugates)


def coordinate_terms(strength: float, width: float, s_i: Array, p_i: Array, c_i: Array) -> tuple[Array, ...]:
    """What every coordinate of structured tokens adds to tau and kappa and to their derivatives, at Vh = width."""
    return (s_i,)


def penalised_norms(conjugates: Array, traces: Array) -> Array:
    """The squared norms of the weights that the penalties weigh, of structured tokens."""
    return np.zeros(2)


def free_energy_value(
    order: Array, conjugates: Array, alpha: float, lambda_k: float, lambda_v: float, envelope: float, *traces: Array
) -> float:
    """The free energy f, given E[M]."""
    return 0.0


def free_energy_gradient(
    order: Array, conjugates: Array, alpha: float, lambda_k: float, lambda_v: float, rates: Array, *traces: Array
) -> Array:
    """The gradient of f in its twelve unknowns."""
    return np.zeros(order.size + conjugates.size)


def free_energy_hessian(
    order: Array, conjugates: Array, alpha: float, lambda_k: float, lambda_v: float, second: Array, *traces: Array
) -> Array:
    """The Hessian of f in its twelve unknowns, given that of E[M]: the Jacobian of the saddle-point equations."""
    return np.eye(order.size + conjugates.size)


def train_loss_slopes(order: Array, rates: Array, second: Array) -> Array:
    """The gradient of the training loss in the order parameters."""
    return np.zeros_like(order)


def parameter_slopes(
    order: Array,
    conjugates: Array,
    alpha: float,
    lambda_k: float,
    lambda_v: float,
    envelope: float,
    rates: Array,
    *traces: Array,
) -> Array:
    """d/dalpha, d/dlambda_k and d/dlambda_v, a row each, of f and of its gradient in its twelve unknowns."""
    return np.stack([np.zeros(1 + order.size + conjugates.size)] * 3)


def displacements(
    order: Array, nu: float, noise: float, w_chi: Array, w_z: Array, y: Array, g_chi: Array, g_z: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """How each of m, q, V moves the fields of its block: t with d grad M = (d^2 M) t."""
    return (np.zeros_like(w_chi),) * 3, (np.zeros_like(w_z),) * 3


def bending(
    order: Array,
    nu: float,
    noise: float,
    weights: Array,
    w_chi: Array,
    w_z: Array,
    y: Array,
    g_chi: Array,
    g_z: Array,
) -> Array:
    """Weighted sums of grad M . d^2 w / da db, for pairs of order parameters."""
    return np.zeros((order.size, order.size))


def stability_matrix(order: Array, alpha: float, squares: Array, *traces: Array) -> Array:
    """The de Almeida-Thouless matrix from the averages of the squared responses dG/dw."""
    return np.zeros((2, 2))


def risk_on_manifold(m_v: float, q_v: float, noise: float, A: float, B: float, *moments: float) -> float:
    """Population risk in A = E sigma_eps and B = E sum sigma^2."""
    return 0.0


def risk_slopes_on_manifold(m_v: float, q_v: float, noise: float, A: float, B: float) -> Array:
    """The derivatives of that in m_v, q_v, the noise, A and B."""
    return np.zeros(5)


def noise_risk(noise: float, *moments: float) -> float:
    """The part of the risk that is the label's own noise."""
    return 0.0


def noise_risk_slope(noise: float) -> float:
    """Its derivative."""
    return 0.0


def best_value_overlap(A: float, B: float, *moments: float) -> float:
    """The m_v of the best v = m_v v*."""
    return 0.0


def score_law(m_k: float, q_k: float, nu: float) -> tuple[float, float, float]:
    """Mean and variance of the hidden token's score, variance of an idle one's, without a weight beside the law."""
    return 0.0, q_k, q_k


def overlap_risk_terms(overlaps: Array, nu: float, noise: float, chi: Array, sigmas: Array, *stars: Array) -> Array:
    """E[(y - f)^2 | scores] from all seven overlaps."""
    return np.zeros(chi.shape[1])


def token_ratio(x: Array, params: Array) -> tuple[Any, ...]:
    """a, a', b, b' at a token's score and c, where sigma = a/(c + sum of b)."""
    return x, x, x, x, x


def kink_points(params: Array) -> Array:
    """The scores at which sigma has a kink."""
    return np.zeros(0)


def residual_coefficients(V: float, V_v: float, y: Array, S2: Array, SW: Array, W2: Array) -> tuple[Array | float, ...]:
    """Affine sigma: the polynomial whose real roots are the residuals at critical points; V is V_k times slope^2."""
    return np.ones_like(y), -y


def residual_point(V: float, V_v: float, r: Array, s_l: Array, w_l: Array) -> Array:
    """Sigma of a token at the critical point of the residual r."""
    return np.zeros_like(s_l)
