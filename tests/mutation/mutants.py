"""Small faults of theory/ and codegen/, each with the properties that must notice it, and the list of all faults.

A fault is a replacement of text that occurs exactly once in its file: a sign, a dropped term, a factor of two, a
swapped index. A fault is caught by any property that fails or any error that is raised.
"""

from mutation.bayes_spectrum import BAYES_SPECTRUM
from mutation.dynamics import DYNAMICS
from mutation.jobs import Checks, Job, Mutant
from mutation.losses import LOSSES
from mutation.rsb import RSB
from mutation.validation import VALIDATION

KERNELS = ("pullback", "gradient identity", "jacobian identity", "sigma as typed", "normalisation")
GRADIENT = "residual is the gradient of the free energy"
STEIN = "stein form is the derivative form"
JACOBIAN = "jacobian is the derivative of the residual"

softmax_kernels = (Job("exp(x)/sum(exp(x))", KERNELS),)
nested_kernels = (Job("tanh(x - mean(tanh(x)))*exp(x/2)/sum(exp(x/2))", KERNELS),)
gradient = (Job("exp(x)/sum(exp(x))", (GRADIENT, STEIN)),)
curvature = (Job("exp(x)/sum(exp(x))", (JACOBIAN,)), Job("sigmoid(x)", (JACOBIAN,)))
gradient_linear = (Job("sigmoid(x)", (GRADIENT, STEIN)),)
ridge = (Job("exp(x)/sum(exp(x))", ("ridge limit", "ridge risk", "ridge solution"), tokens=1),)
saddle = (Job("exp(x)/sum(exp(x))", ("stationarity", "energy identity", "infinite penalty", "infinite data")),)
ranked = (Job("exp(x)/sum(exp(x))", (GRADIENT, STEIN, "population averages", "risk from samples"), "max", 2),)
ranked_three = (Job("exp(x)/sum(exp(x))", ("total weight", "population averages"), "max", 3),)
own = (Job("sigmoid(x)", (GRADIENT, "population averages", "risk from samples"), "x - x**4/10"),)
sampled = (Job("exp(x)/sum(exp(x))", ("risk from samples", "population averages", "scale covariance")),)
samples = (Job("sigmoid(x)", ("risk from samples", "population averages", "scale covariance")),)
proxes = (Job("exp(x)/sum(exp(x))", ("prox and prox-free averages",)),)
weights = (Job("exp(x)/sum(exp(x))", ("total weight",), "max"),)
mixture = (Job("exp(x)/sum(exp(x))", ("lengths mix",)),)


def averages(text: str, task: str = "spiked", tokens: int = 2) -> tuple[Job, ...]:
    """Closed forms against quadrature, the Bayes bound and the Nishimori identities, without a module."""
    return (Job(text, ("population averages", "Bayes bound", "Nishimori", "posterior"), task, tokens, bare=True),)


def typed(text: str) -> tuple[Job, ...]:
    """Rewrites and emitted code against what was typed."""
    return (Job(text, ("sigma as typed", "generated code", "gradient identity")),)


THEORY = [
    Mutant(
        "conditional mean with twice its slope",
        "theory/gaussian/laws.py",
        "+ column * (field - law.mean[i])\n",
        "+ 2 * column * (field - law.mean[i])\n",
        samples,
    ),
    Mutant(
        "conditional covariance without the reduction",
        "theory/gaussian/laws.py",
        "law.covariance.extract(others, others) - column * column.T * law.covariance[i, i]",
        "law.covariance.extract(others, others)",
        samples,
    ),
    Mutant(
        "reweighted covariance",
        "theory/gaussian/laws.py",
        "covariance = self.covariance + (variance - self.covariance[i, i]) * column * column.T",
        "covariance = self.covariance + variance * column * column.T",
        sampled,
    ),
    Mutant(
        "reweighted mean dropped",
        "theory/gaussian/laws.py",
        "(self.mean + column * (mean - self.mean[i]))",
        "(self.mean + column * self.mean[i])",
        sampled,
    ),
    Mutant(
        "Price without the half",
        "theory/gaussian/laws.py",
        "total += cov_rate[i, j] / 2 * score[score_of]",
        "total += cov_rate[i, j] * score[score_of]",
        gradient,
    ),
    Mutant(
        "Price without the mean's rate",
        "theory/gaussian/laws.py",
        "total += mean_rate[i] * gradient[field]",
        "total += 0 * mean_rate[i] * gradient[field]",
        gradient,
    ),
    Mutant(
        "Stein's score of the other field",
        "theory/gaussian/laws.py",
        "keep, score_of = (j, i) if other in gradient else (i, j)",
        "keep, score_of = (j, j) if other in gradient else (i, j)",
        gradient,
    ),
    Mutant(
        "variance of a tilted Gaussian",
        "theory/gaussian/laws.py",
        "variance = 1 / (1 - 2 * quadratic)",
        "variance = 1 / (1 - quadratic)",
        averages("sigmoid(x)", "x**2/4"),
    ),
    Mutant(
        "mean of a tilted Gaussian",
        "theory/gaussian/laws.py",
        "return sp.simplify(linear * variance), sp.simplify(variance)",
        "return sp.simplify(linear / variance), sp.simplify(variance)",
        (Job("sigmoid(x)", ("risk from samples",), "x - x**2/4"),),
    ),
    Mutant(
        "sign of G",
        "theory/derive/saddle.py",
        "{w: -fields.g[b] for b, w in fields.w.items()}, theta)",
        "{w: fields.g[b] for b, w in fields.w.items()}, theta)",
        gradient,
    ),
    Mutant(
        "explicit rate of V",
        "theory/derive/saddle.py",
        "sp.diff((prox - w) ** 2 / (2 * v), v)",
        "sp.diff((prox - w) ** 2 / v, v)",
        gradient,
    ),
    Mutant(
        "Stein on the weight with the wrong sign",
        "theory/derive/saddle.py",
        "conditional.mean[0] + conditional.covariance[0, 0] * fields.slopes",
        "conditional.mean[0] - conditional.covariance[0, 0] * fields.slopes",
        ranked,
    ),
    Mutant(
        "q of k and v exchanged in the conjugates",
        "theory/model.py",
        "{self.m: self.mh, self.q: self.Vh, self.V: self.qh}",
        "{self.m: self.mh, self.q: self.qh, self.V: self.Vh}",
        saddle,
    ),
    Mutant(
        "z eliminated with half the norm",
        "theory/derive/channel.py",
        "objective = AMPLITUDE**2 * N / (2 * v)",
        "objective = AMPLITUDE**2 * N / (4 * v)",
        softmax_kernels,
        ordinary=True,
    ),
    Mutant(
        "sign of the residual",
        "theory/derive/channel.py",
        "output = sp.factor(U + solution * N)",
        "output = sp.factor(U - solution * N)",
        saddle,
    ),
    Mutant(
        "gain of the value fields",
        "theory/derive/channel.py",
        "sp.factor(solution / v), v)",
        "sp.factor(solution), v)",
        softmax_kernels,
    ),
    Mutant(
        "determinant of a replica matrix",
        "theory/derive/replica.py",
        "return self.n * sp.log(self.a) + sp.log(1 + self.n * self.b / self.a)",
        "return self.n * sp.log(self.a) + sp.log(1 - self.n * self.b / self.a)",
        ridge,
    ),
    Mutant(
        "Legendre term of m",
        "theory/derive/replica.py",
        "return -N_REPLICAS * MT * block.m",
        "return N_REPLICAS * MT * block.m",
        ridge,
    ),
    Mutant(
        "Legendre term of q and V without the half",
        "theory/derive/replica.py",
        "overlaps.trace_with(ReplicaMatrix(VT, -QT)) / 2",
        "overlaps.trace_with(ReplicaMatrix(VT, -QT))",
        saddle,
    ),
    Mutant(
        "trace of a product of replica matrices",
        "theory/derive/replica.py",
        "cross = self.a * other.b + self.b * other.a",
        "cross = self.a * other.b - self.b * other.a",
        saddle,
    ),
    Mutant(
        "no curvature between sums",
        "theory/calculus/tokens.py",
        "                total += found[d] * inner[d, c]\n",
        "",
        nested_kernels,
    ),
    Mutant(
        "adjoint without the flow",
        "theory/calculus/tokens.py",
        "by_sums(symbols[c]) + flow)",
        "by_sums(symbols[c]))",
        softmax_kernels,
        ordinary=True,
    ),
    Mutant(
        "rates of sums without the flow",
        "theory/calculus/tokens.py",
        "sp.diff(bodies[c], v) + flow))",
        "sp.diff(bodies[c], v)))",
        softmax_kernels,
    ),
    Mutant(
        "half of the Hessian's outer products",
        "theory/calculus/tokens.py",
        "        pairs += [(contracted(u, symbols[c]), rates[v][c]) for c in range(count)]\n",
        "",
        softmax_kernels,
    ),
    Mutant(
        "covariance of k.v* and v.k* exchanged",
        "theory/derive/population.py",
        "else model.crossed(student, teacher)",
        "else model.crossed(teacher, student)",
        samples,
    ),
    Mutant(
        "sign of the prediction in the risk",
        "theory/derive/population.py",
        "-rate.subs(SIGMA, SIGMA_EPS)])",
        "rate.subs(SIGMA, SIGMA_EPS)])",
        samples,
    ),
    Mutant(
        "bias of idle tokens with the wrong sign",
        "theory/derive/population.py",
        "(bias - BIAS_IDLE) ** 2",
        "(bias + BIAS_IDLE) ** 2",
        samples,
    ),
    Mutant(
        "score variance of a reweighted token",
        "theory/gaussian/closed.py",
        "self.q + sp.factor(self.m**2 * (variance - 1))",
        "self.q + sp.factor(self.m**2 * variance)",
        averages("1 + erf(x)"),
        ordinary=True,
    ),
    Mutant(
        "residual variance of a score",
        "theory/gaussian/closed.py",
        "expr.subs(_RESIDUAL, self.q - self.m**2)",
        "expr.subs(_RESIDUAL, self.q)",
        (Job("1 + x", ("population averages",), "log(1 + x**2)", bare=True),),
    ),
    Mutant(
        "one idle token too many",
        "theory/gaussian/closed.py",
        "rest ** (L - len(factors))",
        "rest ** (L - len(factors) + 1)",
        averages("exp(x - mean(x))"),
    ),
    Mutant(
        "cross terms of a square counted once",
        "theory/gaussian/sequence.py",
        "(1 if a is b else 2) * a.coefficient",
        "1 * a.coefficient",
        (Job("exp(x)/sum(exp(x)) + x/10", ("population averages",)),),
    ),
    Mutant(
        "a further token chosen among all",
        "theory/gaussian/sequence.py",
        "count * (L - len(placed))",
        "count * L",
        (Job("1 + x/2 + mean(x)/2", ("population averages",)),),
    ),
    Mutant(
        "idle tokens counted with the hidden one",
        "theory/gaussian/sequence.py",
        "_scaled(_weighted(w, m, 1), L - 1)",
        "_scaled(_weighted(w, m, 1), L)",
        averages("exp(x)/sum(exp(x))"),
        ordinary=True,
    ),
    Mutant(
        "inverse power one too large",
        "theory/gaussian/sequence.py",
        "InversePower(offset, body, -exponent)",
        "InversePower(offset, body, 1 - exponent)",
        averages("exp(x)/(1 + sum(exp(x)))"),
    ),
    Mutant(
        "mean of one sign",
        "theory/gaussian/rules.py",
        "return sp.erf(signs[0].offset / sp.sqrt(2) / sp.sqrt(signs[0].variance(v)))",
        "return sp.erf(signs[0].offset / sp.sqrt(signs[0].variance(v)))",
        averages("1 + erf(x)"),
    ),
    Mutant(
        "two signs, one without offset",
        "theory/gaussian/rules.py",
        "return 4 * owens_t(reach, one.slope",
        "return 2 * owens_t(reach, one.slope",
        averages("1 + erf(x)"),
    ),
    Mutant(
        "Owen's T of two signs",
        "theory/gaussian/rules.py",
        "- 4 * sp.Add(*values)",
        "- 2 * sp.Add(*values)",
        averages("1 + erf(1/2 + x)"),
    ),
    Mutant(
        "Stein's lemma on powers",
        "theory/gaussian/rules.py",
        "c, k = c * (k - 1) * v, k - 2",
        "c, k = c * k * v, k - 2",
        averages("1 + x + x**4"),
        ordinary=True,
    ),
    Mutant(
        "tilt of an exponential",
        "theory/gaussian/rules.py",
        "(a * mean**2 + b * mean + b**2 * variance / 2)",
        "(a * mean**2 + b * mean + b**2 * variance)",
        averages("exp(x)"),
    ),
    Mutant(
        "damping of a wave",
        "theory/gaussian/rules.py",
        "return sp.exp(-(wave.rate**2) * v / 2) * sp.Add(*parts)",
        "return sp.exp(-(wave.rate**2) * v) * sp.Add(*parts)",
        averages("cos(x)"),
    ),
    Mutant(
        "density of a sign's argument",
        "theory/gaussian/rules.py",
        "parts.append(2 * count * sign.slope * v * density * inner)",
        "parts.append(count * sign.slope * v * density * inner)",
        averages("relu(x)"),
    ),
    Mutant(
        "direction of the hard limit",
        "theory/language/task.py",
        "return 1 if slope.is_positive else -1",
        "return -1 if slope.is_positive else 1",
        (Job("exp(x)/sum(exp(x))", ("hard limit",), "max", bare=True),),
    ),
    Mutant(
        "Nishimori factor inverted",
        "theory/derive/nishimori.py",
        "return NishimoriCondition(1 / total, c)",
        "return NishimoriCondition(total, c)",
        averages("3*exp(x)/sum(exp(x))"),
    ),
    Mutant(
        "label noise dropped",
        "theory/model.py",
        "NOISE * LABEL_NOISE",
        "NOISE / 2 * LABEL_NOISE",
        ridge,
    ),
    Mutant(
        "spread of the student's field",
        "theory/model.py",
        "sp.sqrt(self.q - self.m**2)",
        "sp.sqrt(self.q)",
        ridge,
    ),
    Mutant(
        "Hamilton-Jacobi carries the gradient backwards",
        "theory/derive/curvature.py",
        "coeff(bend).subs(slope, -g)",
        "coeff(bend).subs(slope, g)",
        curvature,
    ),
    Mutant(
        "the path of a field against its noise",
        "theory/derive/curvature.py",
        "sp.diff(mean, theta) + (field - mean) * sp.diff(variance, theta)",
        "sp.diff(mean, theta) - (field - mean) * sp.diff(variance, theta)",
        curvature,
    ),
    Mutant(
        "bending along G instead of the gradient of M",
        "theory/derive/curvature.py",
        "sp.Add(*[-fields.g[b] * moved(",
        "sp.Add(*[fields.g[b] * moved(",
        curvature,
    ),
]

CODEGEN = [
    Mutant(
        "rates of idle tokens dropped",
        "codegen/lower/equations.py",
        "return [t for part in (average.hidden, average.idle) for t in",
        "return [t for part in (average.hidden,) for t in",
        gradient,
    ),
    Mutant(
        "score fields not centred",
        "codegen/lower/equations.py",
        "w + law.mean[law.fields.index(w)] for w, law",
        "w for w, law",
        gradient,
    ),
    Mutant(
        "first idle token skipped in moments",
        "codegen/emit/numpy.py",
        "f'{n}[1:]' for n in names",
        "f'{n}[2:]' for n in names",
        gradient,
    ),
    Mutant(
        "sign of a diagonal",
        "codegen/emit/numpy.py",
        'f"{output.name}[index, index] += {numpy',
        'f"{output.name}[index, index] -= {numpy',
        typed("exp(x)/sum(exp(x))"),
    ),
    Mutant(
        "row sum doubled",
        "codegen/emit/numpy.py",
        'f"return {text}" if returned.is_number else',
        'f"return 2.0 * {text}" if returned.is_number else',
        gradient,
    ),
    Mutant(
        "fields of scores and values exchanged",
        "codegen/lower/equations.py",
        'FIELDS = {"score": "w_chi", "value": "w_z"}',
        'FIELDS = {"value": "w_chi", "score": "w_z"}',
        proxes,
    ),
    Mutant(
        "first idle token taken for the hidden one",
        "codegen/emit/numpy.py",
        'f"{names.hidden} = {names.source}[0]"',
        'f"{names.hidden} = {names.source}[1]"',
        proxes,
    ),
    Mutant(
        "sigmoid of the wrong argument",
        "codegen/rewrite/recognise.py",
        "sp.exp(p * a) * sigmoid(a - b) ** -p",
        "sp.exp(p * a) * sigmoid(b - a) ** -p",
        typed("1/(1 + exp(-x))"),
    ),
    Mutant(
        "complement of erf",
        "theory/language/functions.py",
        "(ONE, erfc(-u))",
        "(ONE, erfc(u))",
        typed("1 + erf(x)"),
    ),
    Mutant(
        "complement of tanh",
        "theory/language/functions.py",
        "(ONE, 2 * sigmoid(2 * u))",
        "(ONE, 2 * sigmoid(u))",
        typed("1 + tanh(x)"),
    ),
    Mutant(
        "log-sum-exp",
        "codegen/rewrite/recognise.py",
        "return a + softplus(_log_sum_exp(others) - a) if others else a",
        "return a + softplus(a - _log_sum_exp(others)) if others else a",
        typed("log(1 + exp(x))"),
    ),
    Mutant(
        "scale of a sum lost",
        "codegen/rewrite/scales.py",
        "return sp.exp(largest) * sp.Add(*[product(e, sp.exp(-largest)) for e, _ in parts]), largest",
        "return sp.Add(*[product(e, sp.exp(-largest)) for e, _ in parts]), largest",
        typed("sigmoid(x)*x/(sigmoid(x) + sigmoid(2*x))"),
    ),
    Mutant(
        "scale of a power",
        "codegen/rewrite/scales.py",
        "return sp.exp(power * exponent) * rest**power, power * scale",
        "return sp.exp(exponent) * rest**power, power * scale",
        typed("x/(sigmoid(x) + sigmoid(2*x))"),
    ),
    Mutant(
        "difference of squares",
        "codegen/rewrite/scales.py",
        "return factored(rest) - k * (r - q) * (r + q)",
        "return factored(rest) + k * (r - q) * (r + q)",
        typed("exp(-x**2)/sum(exp(-x**2))"),
    ),
    Mutant(
        "square root printed as its base",
        "codegen/emit/printer.py",
        'return f"np.sqrt({self._print(base)})"',
        'return f"({self._print(base)})"',
        typed("x/sqrt(1 + x**2)"),
    ),
    Mutant(
        "sign of a product lost in print",
        "codegen/emit/printer.py",
        'sign = "-" if coefficient < 0 else ""',
        'sign = ""',
        typed("exp(-x)/sum(exp(-x))"),
    ),
    Mutant(
        "denominators printed without brackets",
        "codegen/emit/printer.py",
        "f\"{text}/({'*'.join(below)})\"",
        "f\"{text}/{'*'.join(below)}\"",
        typed("x/((1 + x**2)*(2 + x**2))"),
    ),
    Mutant(
        "covariance of value and label",
        "codegen/runtime/fields.py",
        "hidden[0, 0], hidden[1, 1], hidden[0, 1], hidden[0, 1]",
        "hidden[0, 0], hidden[1, 1], hidden[0, 0], hidden[0, 0]",
        gradient,
    ),
    Mutant(
        "invariant direction of the values",
        "codegen/runtime/fields.py",
        "(*ones, total) if total else ()",
        "(*ones, -total) if total else ()",
        gradient,
    ),
    Mutant(
        "mean of the hidden score dropped",
        "codegen/runtime/fields.py",
        "score_mean[0], score[0, 0] = mean[0], hidden[0, 0]",
        "score_mean[0], score[0, 0] = 0.0 * mean[0], hidden[0, 0]",
        gradient,
    ),
    Mutant(
        "hidden score not shifted",
        "codegen/runtime/population.py",
        "    chi[0] += mean\n    sigmas = setting.kernel.sigma(chi, setting.params)\n    first =",
        "    sigmas = setting.kernel.sigma(chi, setting.params)\n    first =",
        samples,
    ),
    Mutant(
        "hidden token missing from B",
        "codegen/runtime/population.py",
        "np.array([weighted_sum(sigmas[0], first), weighted_sum(squares[0], first)])",
        "np.array([weighted_sum(sigmas[0], first), 0.0 * weighted_sum(squares[0], first)])",
        samples,
    ),
    Mutant(
        "second moment of scores in a frame",
        "codegen/runtime/population.py",
        "spread = differences * scale\n",
        "spread = differences * scale**2\n",
        sampled,
    ),
    Mutant(
        "shares of lengths",
        "codegen/runtime/mixture.py",
        "weighted_record(self.last, self.shares)",
        "weighted_record(self.last, self.shares**2)",
        mixture,
    ),
    Mutant(
        "free coordinates of q",
        "codegen/runtime/fixedpoint.py",
        "return ordered(m, m * m + np.exp(spread), np.exp(v))",
        "return ordered(m, m + np.exp(spread), np.exp(v))",
        ridge,
    ),
    Mutant(
        "Anderson's mixture with the wrong sign",
        "codegen/runtime/driver.py",
        "mixed = points[-1] - moves @ mixture",
        "mixed = points[-1] + moves @ mixture",
        (*ridge, *saddle),
        survives="wild steps are left out and the rest is mended by Newton's: it costs iterations only",
    ),
    Mutant(
        "slope of a beaten token",
        "codegen/runtime/location.py",
        "np.concatenate([lost.sum(axis=0)[None], -lost])",
        "np.concatenate([lost.sum(axis=0)[None], lost])",
        ranked,
    ),
    Mutant(
        "number of tokens in the weight",
        "codegen/runtime/location.py",
        "return Weight(len(w_chi) * won, self.sign * slopes)",
        "return Weight((len(w_chi) + 1) * won, self.sign * slopes)",
        weights,
    ),
    Mutant(
        "Gumbel noise without its slope",
        "codegen/runtime/location.py",
        "fall = np.exp(np.minimum(-slope * (x[b, None] - deviation * g), 30.0))",
        "fall = np.exp(np.minimum(-(x[b, None] - deviation * g), 30.0))",
        ranked,
    ),
    Mutant(
        "spread of chi* given w",
        "codegen/runtime/location.py",
        "return m_k / q_k, max(1.0 - m_k * m_k / q_k, SMALLEST_DEVIATION**2)",
        "return m_k / q_k, max(1.0 + m_k * m_k / q_k, SMALLEST_DEVIATION**2)",
        ranked,
    ),
    Mutant(
        "contest of three",
        "codegen/runtime/location.py",
        "product = weight * cdf.prod(axis=0)",
        "product = weight * cdf.sum(axis=0)",
        ranked_three,
    ),
    Mutant(
        "chance to win over three",
        "codegen/runtime/location.py",
        "won += weight * noise.cdf(ahead + t).prod(axis=0)",
        "won += weight * noise.cdf(ahead + t).sum(axis=0)",
        ranked_three,
    ),
    Mutant(
        "slope of an own log-weight",
        "codegen/runtime/location.py",
        "slope = moments[1] / deviation\n",
        "slope = moments[1] * deviation\n",
        own,
    ),
    Mutant(
        "Gaussian weights of the lattice",
        "codegen/runtime/nodes.py",
        "weights = np.exp(-0.5 * ",
        "weights = np.exp(-0.6 * ",
        ridge,
    ),
    Mutant(
        "second derivatives in the values, the prox that follows added",
        "codegen/runtime/hessian.py",
        "within -= order[V_K] *",
        "within += order[V_K] *",
        curvature,
    ),
    Mutant(
        "second derivatives across the blocks, one half",
        "codegen/runtime/hessian.py",
        "total[np.ix_(VALUE, SCORE)] += mixed_block.T",
        "total[np.ix_(VALUE, SCORE)] += 0.0 * mixed_block.T",
        curvature,
    ),
    Mutant(
        "what conditional means miss taken off",
        "codegen/runtime/hessian.py",
        "out[:extra, :extra] += block[3:, 3:]",
        "out[:extra, :extra] -= block[3:, 3:]",
        curvature,
    ),
]

SPECTRUM = [
    Mutant(
        "whitened penalty multiplied by the eigenvalue",
        "theory/model.py",
        "self.penalty_curvature(block) * PENALTY_WEIGHT / self.covariance",
        "self.penalty_curvature(block) * PENALTY_WEIGHT * self.covariance",
        (Checks("oracle/test_spectrum.py", ("test_reference", "test_means_against_matrices")),),
    ),
    Mutant(
        "teacher of even weights",
        "theory/derive/replica.py",
        "coupling = MT**2 * block.teacher_square * precision.inverse().sum()",
        "coupling = MT**2 * precision.inverse().sum()",
        (Checks("oracle/test_spectrum.py", ("test_means_against_matrices",)),),
    ),
    Mutant(
        "squared response of the mean in place of the mean of the squares",
        "theory/derive/spectrum.py",
        "return multiple * sp.diff(tau, block.Vh)",
        "return tau**2",
        (Checks("oracle/test_spectrum.py", ("test_every_step_of_the_chain",)),),
    ),
    Mutant(
        "norms by half the derivative of f",
        "theory/derive/spectrum.py",
        "2 * sp.diff(free_energy, b.strength)",
        "sp.diff(free_energy, b.strength)",
        (Checks("oracle/test_spectrum.py", ("test_norms_and_energy",)),),
    ),
    Mutant(
        "derivatives of the prior without their second order",
        "codegen/lower/equations.py",
        "(hessian,) = _of_prior(model, hessian)",
        "(hessian,) = _of_prior(model, replace(hessian, returned=Matrix(_rows(found.jacobian * 2), notes)))",
        (Checks("oracle/test_spectrum.py", ("test_residual_is_the_gradient",)),),
    ),
    Mutant(
        "mean over the positive eigenvalues alone",
        "codegen/runtime/spectrum.py",
        "return (np.array(sums) / problem.spectrum.dim,)",
        "return (np.array(sums) / problem.spectrum.s.size,)",
        (Checks("oracle/test_spectrum.py", ("test_half_of_the_eigenvalues_zero",)),),
    ),
    Mutant(
        "overlaps of trained weights without the metric",
        "validation/statistics/measure.py",
        "k, v = dataset.whitened(trained.k), dataset.whitened(trained.v)",
        "k, v = trained.k, trained.v",
        (Checks("unit/test_spectrum.py", ("test_training_by_an_objective_written_out",)),),
    ),
    Mutant(
        "penalty of the whitened weights",
        "validation/training/train.py",
        "gradient[part] += self.penalty_weights * of.penalty_slope(weights[part], strength)",
        "gradient[part] += seen[part] * self.penalty_weights * of.penalty_slope(weights[part], strength)",
        (Checks("unit/test_spectrum.py", ("test_training_by_an_objective_written_out",)),),
    ),
    Mutant(
        "a label that does not see its token's radius",
        "codegen/runtime/label.py",
        "a = a * self.radius",
        "a = a * 1.0",
        (Checks("oracle/test_radial.py", ("test_a_radius_of_all_tokens_is_a_matter_of_units",)),),
    ),
    Mutant(
        "scores without their radius",
        "codegen/lower/kernels.py",
        "stable = plain.multiplied(system.model.radius)",
        "stable = plain",
        (Checks("oracle/test_radial.py", ("test_kernels_by_their_formulas",)),),
    ),
    Mutant(
        "slopes of the location's weight without the radius",
        "codegen/runtime/radial.py",
        "return Weight(found.value, radii * found.slopes)",
        "return Weight(found.value, found.slopes)",
        (Checks("oracle/test_radial.py", ("test_a_radius_of_all_tokens_is_a_matter_of_units",)),),
    ),
    Mutant(
        "the risk of a label without its token's radius",
        "theory/derive/population.py",
        "a *= model.radius",
        "a *= 1",
        (Checks("oracle/test_radial.py", ("test_the_risk_is_that_of_samples",)),),
    ),
    Mutant(
        "test tokens of a pool that were trained on",
        "validation/studies/embeddings.py",
        "for part in (order[:cut], order[cut:])",
        "for part in (order[:cut], order[:cut])",
        (Checks("unit/test_embeddings.py", ("test_no_test_token_was_trained_on",)),),
    ),
]

UNNOTICED = [
    Mutant(
        "sign of a conditional mean",
        "theory/gaussian/laws.py",
        "sp.Matrix([law.mean[j] for j in others]) + column * (field",
        "sp.Matrix([law.mean[j] for j in others]) - column * (field",
        samples,
        survives="the biases of hidden and idle tokens change sign together; the samples do not resolve what is left",
    ),
    Mutant(
        "inverse power with the wrong sign of its body",
        "theory/gaussian/sequence.py",
        "rest, body = rest - slope * symbol, body + slope * term",
        "rest, body = rest - slope * symbol, body - slope * term",
        averages("exp(x)/(1 + sum(exp(x)))"),
        survives="a body that may be negative is refused, and the averages are sampled instead, rightly",
    ),
    Mutant(
        "sum of a constant over the tokens",
        "codegen/emit/numpy.py",
        'return f"{name} = {tokens} * ({text})"',
        'return f"{name} = ({text})"',
        typed("tanh(x) + sum(2)*x"),
        survives="the language has summed constants before anything is printed",
    ),
    Mutant(
        "rows of a Hessian from the wrong diagonal",
        "codegen/emit/numpy.py",
        "[i, i:] for i in range({first}, {tokens})",
        "[i, :] for i in range({first}, {tokens})",
        (Job("exp(x)/sum(exp(x))", ("generated code",), tokens=4),),
        survives="only kernels of more tokens than the suite looks at are not written out token by token",
    ),
]

MUTANTS = (*THEORY, *CODEGEN, *LOSSES, *SPECTRUM, *BAYES_SPECTRUM, *DYNAMICS, *RSB, *VALIDATION, *UNNOTICED)
