"""Run-time source, from which the linker (codegen/link.py) puts what a generated module needs into it.

The files are ordinary modules: they import, are linted, typed and tested as such. Files that end in `kernel` stand for
what is derived, and a name that a part assigns a default to, such as ROUTES, is a seam at which the linker puts a
system's choice. Where to look:

- what every level takes: `nodes`, `aligned` (quadrature), `driver` (iterations), `refinement` (finer nodes and the
  errors that they tell), `linear`, `lowrank` (algebra), `inputs`, `options`, `script`, `wording` (arguments and texts),
  `places`, `lengths`, `mixture` (order parameters, numbers of tokens), `location`, `label`, `loss` (laws of one
  sequence), `spectrum`, `spectrum_text` (structured tokens), `radial` (tokens with radii), `kernel`.
- replica symmetric: `fields`, `prior`, `energy`, `hessian` (the equations); `channel`, `prox`, `proxfree`, `kinks`,
  `values`, `tested` (averages over one sequence); `routes` (which of them is taken); `states`, `fixedpoint`, `solver`,
  `following`, `sensitivity` (fixed points, their errors, what is read off them).
- its folds: `rows`, `folds`, `gaps`, `onsets` (scores of one dimension); `signed`, `critical`, `contact`,
  `searched`, `controls`, `searching`, `seeking` (any dimension).
- infinite data: `population`, `tokenwise` (a fixed estimator); `population_kernel`, `onetoken`, `threshold`,
  `alltokens` (the averages of the best one), `optimum`, `population_solver`.
- Bayes-optimal: `bayes_kernel`, `bayes_prior`, `bayes_rates`, `bayes_own`, `bayes_weight` (the token's own score),
  `bayes_coupled`, `bayes_keys`, `bayes_location`, `bayes_sampled` (coupled scores), `bayes_label`, `bayes_evolution`,
  `bayes_solver`.
- one step of breaking: `rsb_kernel`, `rsb_table`, `rsb_grid`, `rsb_channel`, `rsb_nested`, `rsb_averages`,
  `rsb_evolution`, `rsb_balance`, `rsb_states`, `rsb_solver`.
- training: `dynamics_kernel`, `dynamics_nodes`, `dynamics_averages`, `dynamics_factors`, `dynamics_located`,
  `dynamics_gains`, `dynamics_flow`, `dynamics_points`, `dynamics_solver`.
"""
