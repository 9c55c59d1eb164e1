"""Small faults of validation/, each with the tests of the suite that must notice it."""

from mutation.jobs import Checks, Mutant


def checks(file: str, *names: str) -> tuple[Checks, ...]:
    """Tests of one file, each name without its `test_`."""
    return (Checks(f"{file}.py", tuple(f"test_{name}" for name in names)),)


laws = checks("unit/test_validation", "sampler_laws")
gradient = checks("unit/test_validation", "gradient_is_the_complex_step_derivative[Softmax]")
definition = checks("unit/test_validation", "objective_is_its_definition")
measured = checks("unit/test_validation", "overlaps_are_their_definition", "measures_of_a_trained_softmax")
zero_means = checks("unit/test_controls", "means_are_zero_at_small_dimensions[softmax-spiked-2-2.0]")
one_dimension = checks("statistical/test_statistics", "extrapolation_of_a_single_dimension_is_the_t_test")
several = checks("statistical/test_statistics", "extrapolation_is_the_weighted_least_squares_fit")
one_step = checks("unit/test_online", "a_step_is_the_gradient_of_one_sequence")

DATA = [
    Mutant(
        "hidden score added to the one that was there",
        "validation/data/sampling.py",
        "hidden_scores - chi[hidden], k_star)",
        "hidden_scores + chi[hidden], k_star)",
        laws,
        ordinary=True,
    ),
    Mutant(
        "label of the first token",
        "validation/data/sampling.py",
        "label(z[hidden], self.noise",
        "label(z[:, 0], self.noise",
        laws,
    ),
    Mutant(
        "label noise taken for a variance",
        "validation/data/sampling.py",
        "label(z[hidden], self.noise, rng)",
        "label(z[hidden], self.noise**0.5, rng)",
        laws,
    ),
    Mutant(
        "teachers on one side",
        "validation/data/sampling.py",
        "directions *= np.sign(np.diag(triangle))",
        "directions *= 1.0",
        checks("unit/test_validation", "teachers_have_no_preferred_side"),
    ),
    Mutant(
        "lengths in equal shares",
        "validation/data/sampling.py",
        "size=self.samples, p=shares / shares.sum())",
        "size=self.samples)",
        checks("unit/test_sampling", "lengths_have_their_shares_and_every_sequence_its_place"),
    ),
    Mutant(
        "one sequence too many in a first part",
        "validation/data/sampling.py",
        "np.searchsorted(batch.places, samples)",
        "np.searchsorted(batch.places, samples + 1)",
        checks("unit/test_sampling", "the_first_sequences_are_views_of_the_same_data"),
    ),
    Mutant(
        "base law of an own score",
        "validation/data/scores.py",
        "x.shape) - x * x / 2",
        "x.shape) - x * x",
        checks("unit/test_sampling", "the_hidden_score_has_the_reweighted_density"),
    ),
    Mutant(
        "acceptance to first order",
        "validation/data/scores.py",
        "x[np.log1p(-rng.random(number)) < below]",
        "x[-rng.random(number) < below]",
        checks("unit/test_sampling", "a_coarse_envelope_gives_the_same_law"),
    ),
    Mutant(
        "Gumbel noise upside down",
        "validation/data/scores.py",
        "logs + rng.gumbel(size=chi.shape)",
        "logs - rng.gumbel(size=chi.shape)",
        checks("unit/test_sampling", "the_location_is_as_predictable_as_the_population_average_says[max-3]"),
    ),
    Mutant(
        "sample number rounded down",
        "validation/experiment.py",
        "floor(exact + rng.random())",
        "floor(exact)",
        checks("unit/test_validation", "sample_numbers_are_right_on_average"),
    ),
    Mutant(
        "streams shared by dimensions",
        "validation/experiment.py",
        "spawn_key=(dim, seed)",
        "spawn_key=(seed,)",
        checks("unit/test_validation", "no_two_trainings_share_a_stream"),
    ),
]

TRAINING = [
    Mutant(
        "adjoint of the fields without 1/sqrt(D)",
        "validation/training/attention.py",
        "cotangent.T.reshape(-1) / sqrt(dim)",
        "cotangent.T.reshape(-1)",
        gradient,
    ),
    Mutant(
        "mean loss in place of the sum",
        "validation/training/attention.py",
        "value += of.loss(y, f).sum().item()",
        "value += of.loss(y, f).mean().item()",
        gradient,
    ),
    Mutant(
        "centre with the wrong sign",
        "validation/training/attention.py",
        "chi += centre.chi[number][:, part]",
        "chi -= centre.chi[number][:, part]",
        checks("unit/test_validation", "a_centre_changes_rounding_only"),
    ),
    Mutant(
        "slope of the penalty",
        "validation/training/learning.py",
        "penalty_slope=numpy_function(sp.diff(model.penalty, THETA), weight)",
        "penalty_slope=numpy_function(2 * sp.diff(model.penalty, THETA), weight)",
        gradient,
        ordinary=True,
    ),
    Mutant(
        "loss and its slope without the half",
        "validation/training/learning.py",
        "loss=numpy_function(loss, pair),\n        loss_by_output=numpy_function(slope, pair)",
        "loss=numpy_function(2 * loss, pair),\n        loss_by_output=numpy_function(2 * slope, pair)",
        definition,
    ),
    Mutant(
        "whatever ends has converged",
        "validation/training/train.py",
        "norm, norm <= tolerance, steps)",
        "norm, norm < float('inf'), steps)",
        checks("unit/test_validation", "training_says_when_it_has_not_converged"),
    ),
    Mutant(
        "gradient norm relative to the square of the objective",
        "validation/training/methods.py",
        "* reach / max(value, np.finfo(float).tiny)",
        "* reach / max(value**2, np.finfo(float).tiny)",
        checks("unit/test_validation", "the_gradient_norm_has_no_units"),
    ),
    Mutant(
        "a flat place taken for a minimum",
        "validation/training/methods.py",
        "if lowest and relative_gradient_norm",
        "if relative_gradient_norm",
        checks("unit/test_validation", "a_flat_place_that_lies_higher_is_not_taken_for_a_minimum"),
    ),
    Mutant(
        "informed start too long",
        "validation/training/train.py",
        "sqrt(max(self.q_k - self.m_k**2, 0.0)) * u_k",
        "sqrt(max(self.q_k, 0.0)) * u_k",
        checks("unit/test_validation", "informed_start_has_the_overlaps_asked_for"),
    ),
    Mutant(
        "slope of a rounded kink",
        "validation/training/kinks.py",
        "3 * t * (1 - t) * (b - a) / self.width",
        "6 * t * (1 - t) * (b - a) / self.width",
        checks("unit/test_kinks", "rounded_kinks"),
    ),
    Mutant(
        "crossed overlaps exchanged",
        "validation/statistics/measure.py",
        "(k, v_star), (v, k_star), (k, v))",
        "(v, k_star), (k, v_star), (k, v))",
        measured,
    ),
    Mutant(
        "penalties taken off the energy",
        "validation/statistics/measure.py",
        "dataset.samples * train_loss + sum(penalties)",
        "dataset.samples * train_loss - sum(penalties)",
        measured,
    ),
    Mutant(
        "penalty of one-pass steps not divided by D",
        "validation/training/online.py",
        "w -= rate / dim * of.penalty_slope(w, weight)",
        "w -= rate * of.penalty_slope(w, weight)",
        one_step,
    ),
    Mutant(
        "values stepped along the keys' slopes",
        "validation/training/online.py",
        "zip((k, v), lambdas, slopes, strict=True)",
        "zip((k, v), lambdas, slopes[::-1], strict=True)",
        one_step,
    ),
    Mutant(
        "sequences used by length",
        "validation/training/online.py",
        "order = np.argsort(np.concatenate([b.places for b in dataset.batches]))",
        "order = np.arange(rows.size)",
        checks("unit/test_online", "sequences_are_used_in_the_order_they_were_drawn"),
    ),
    Mutant(
        "mixed curvature not transposed",
        "validation/training/response.py",
        "[mixed.T, _summed(X, vv)]",
        "[mixed, _summed(X, vv)]",
        checks("statistical/test_stability", "hessian_is_the_derivative_of_the_gradient[softplus-2]"),
    ),
    Mutant(
        "replicon with the wrong sign",
        "validation/training/response.py",
        "T = np.eye(2) - np.diag",
        "T = np.eye(2) + np.diag",
        checks("statistical/test_stability", "ridge_response_is_closed"),
    ),
]

STATISTICS = [
    Mutant(
        "control variates with all D directions",
        "validation/statistics/controls.py",
        "(dim - 2) / dim * expected[n]",
        "expected[n]",
        zero_means,
    ),
    Mutant(
        "half key not halved",
        "validation/statistics/controls.py",
        "self.token_map.sigma(key * self.a * chi)",
        "self.token_map.sigma(self.a * chi)",
        zero_means,
    ),
    Mutant(
        "controls regressed out for nothing",
        "validation/statistics/comparison.py",
        "spare = 1 - int(kept.sum()) / sum(",
        "spare = 1 - 0 / sum(",
        checks("unit/test_controls", "a_single_dimension_is_the_textbook_regression"),
    ),
    Mutant(
        "normal quantile in place of Student's",
        "validation/statistics/comparison.py",
        "float(special.stdtr(self._spread(1.0)[1], -abs(self.z)))",
        "float(special.ndtr(-abs(self.z)))",
        one_dimension,
    ),
    Mutant(
        "sign of z",
        "validation/statistics/comparison.py",
        "self._standardised(self.estimate.mean - self.theory,",
        "self._standardised(self.theory - self.estimate.mean,",
        one_dimension,
    ),
    Mutant(
        "Bonferroni in place of Holm",
        "validation/statistics/comparison.py",
        "min(1.0, (len(p_values) - rank) * p_values[index])",
        "min(1.0, len(p_values) * p_values[index])",
        checks("statistical/test_statistics", "holm_is_closed_bonferroni"),
    ),
    Mutant(
        "no correction for the family",
        "validation/statistics/comparison.py",
        "running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))",
        "running = p_values[index]",
        checks("statistical/test_statistics", "family_false_alarm_is_the_stated_one[1/D]"),
    ),
    Mutant(
        "extrapolation with equal weights",
        "validation/statistics/comparison.py",
        "_coefficients(dims, counts * dims)",
        "_coefficients(dims, counts)",
        several,
        ordinary=True,
    ),
    Mutant(
        "extrapolation in 1/D^2",
        "validation/statistics/comparison.py",
        "inverse = dims[0] / dims\n",
        "inverse = (dims[0] / dims) ** 2\n",
        several,
    ),
    Mutant(
        "variance of the fit without the seeds",
        "validation/statistics/comparison.py",
        "parts = limit**2 * variances / counts",
        "parts = limit**2 * variances / counts.max() ** 2",
        checks("statistical/test_statistics", "standard_error_is_right_on_average"),
    ),
    Mutant(
        "degrees of freedom of the lack of fit",
        "validation/statistics/comparison.py",
        "/ (dims.size - 2) / scale",
        "/ (dims.size - 1) / scale",
        checks("statistical/test_statistics", "lack_of_fit_is_uniform_under_the_model_and_small_off_it"),
    ),
    Mutant(
        "errors of the theory left out",
        "validation/statistics/comparison.py",
        "total = hypot(sem, self.theory_error)",
        "total = hypot(sem, 0.0 * self.theory_error)",
        checks("statistical/test_statistics", "theory_error_counts_in_quadrature"),
    ),
    Mutant(
        "power of one side",
        "validation/statistics/comparison.py",
        "special.ndtr(noncentrality - threshold) + special.ndtr(-noncentrality - threshold)",
        "special.ndtr(noncentrality - threshold)",
        checks("statistical/test_statistics", "power_is_the_noncentral_t_tail"),
    ),
    Mutant(
        "power at the level of a single test",
        "validation/statistics/comparison.py",
        "level = false_alarm / len(pairs)",
        "level = false_alarm",
        checks(
            "statistical/test_calibration",
            "a_theory_off_by_three_per_cent_is_seen_with_the_stated_power[how0-200-0.03]",
        ),
    ),
    Mutant(
        "agreement without power",
        "validation/statistics/comparison.py",
        '"agrees" if power >= POWER else "undecided"',
        '"agrees" if power >= 0 else "undecided"',
        checks("statistical/test_statistics", "verdicts"),
    ),
    Mutant(
        "verdict of the survivors",
        "validation/experiment.py",
        '"undecided" if _failed_share(experiment) > MOST_FAILURES else comparison.verdict',
        "comparison.verdict",
        checks("unit/test_validation", "report_is_undecided_when_many_trainings_failed"),
    ),
    Mutant(
        "control variates left out of the report",
        "validation/experiment.py",
        "controls = experiment.variates or None",
        "controls = None",
        checks(
            "statistical/test_calibration", "a_theory_off_by_three_per_cent_is_seen_with_the_stated_power[how1-60-0.1]"
        ),
    ),
]

KEPT = [
    Mutant(
        "rows of a ledger not committed one by one",
        "validation/ledger.py",
        '"isolation_level": None',
        '"isolation_level": "DEFERRED"',
        checks("unit/test_ledger", "rows_come_back_and_the_last_of_a_key_counts"),
    ),
    Mutant(
        "a ledger of a newer schema taken for one of this",
        "validation/ledger.py",
        "if schema != SCHEMA:",
        "if schema < SCHEMA:",
        checks("unit/test_ledger", "what_is_no_ledger_of_this_version_is_left_as_it_is"),
    ),
    Mutant(
        "two sweeps on one ledger",
        "validation/ledger.py",
        '"BEGIN EXCLUSIVE"',
        '"BEGIN"',
        checks("unit/test_ledger", "one_is_alone_and_the_next_is_told"),
    ),
    Mutant(
        "kept trainings without their dimension",
        "validation/experiment.py",
        'key = {"dim": dim, "seed": seed, ',
        'key = {"seed": seed, ',
        checks("unit/test_kept", "an_interrupted_validation_goes_on_where_it_stopped"),
    ),
    Mutant(
        "a scan that begins its seeds again",
        "validation/studies/discrepancy.py",
        "for seed in range(len(found), seeds)]",
        "for seed in range(seeds - len(found))]",
        checks("statistical/test_stability", "a_scan_goes_on_where_it_stopped"),
    ),
    Mutant(
        "every seed of the paper's table has the same data",
        "validation/studies/paper.py",
        "rng, _ = streams(ROOT_SEED, dim, seed)",
        "rng, _ = streams(ROOT_SEED, dim, 0)",
        checks("unit/test_paper", "every_seed_has_its_own_data"),
    ),
]

MESSAGES = [
    Mutant(
        "memory term with the wrong sign",
        "validation/amp/passing.py",
        "omega = fields - V[:, None, None] * gradients[b]",
        "omega = fields + V[:, None, None] * gradients[b]",
        checks("unit/test_amp", "one_token_ends_at_ridge_regression"),
    ),
    Mutant(
        "overshoot along k not taken off",
        "validation/amp/passing.py",
        "change[1] -= _overshoot(",
        "change[1] -= 0.0 * _overshoot(",
        checks("unit/test_amp", "both_starts_come_to_rest_at_the_same_estimates[spiked-2.0]"),
    ),
    Mutant(
        "posterior of the location left out of a slope",
        "validation/amp/evidence.py",
        "return p * slope, p * pull",
        "return slope, p * pull",
        checks("unit/test_amp", "gradients_of_the_log_evidence[spiked-2.0-spiked_log_z]"),
    ),
    Mutant(
        "label noise of the sampled state evolution",
        "validation/amp/evolution.py",
        "label_variance(1.0 - q_v, of.noise)",
        "label_variance(1.0 - q_v, 2.0 * of.noise)",
        checks("statistical/test_amp", "two_ways_to_the_state_evolution_agree[spiked-2.0-4000]"),
    ),
    Mutant(
        "location read off the values",
        "validation/amp/problem.py",
        "of.evidence.location(omega_k, step.V_k) * omega_v",
        "of.evidence.location(omega_v, step.V_k) * omega_v",
        checks("unit/test_amp", "the_risk_of_estimates_on_the_manifold"),
    ),
]

PROPERTIES = [
    Mutant(
        "a bound from the wrong side",
        "validation/properties/verdict.py",
        "if found >= bound - allowed:",
        "if found <= bound + allowed:",
        checks("unit/test_check", "a_wrong_bayes_gain_fails"),
    ),
    Mutant(
        "what is not a number passes",
        "validation/properties/verdict.py",
        "return PASSED if gap <= allowed else",
        "return PASSED if not gap > allowed else",
        checks("unit/test_check", "what_is_not_a_number_fails"),
    ),
    Mutant(
        "an error passes",
        "validation/properties/suite.py",
        'Verdict("failed", f"{type(error).__name__}',
        'Verdict("passed", f"{type(error).__name__}',
        checks("unit/test_check", "an_error_is_a_failure_and_a_refusal_is_not"),
    ),
]

VALIDATION = (*DATA, *TRAINING, *STATISTICS, *KEPT, *MESSAGES, *PROPERTIES)
