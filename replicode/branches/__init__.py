"""Solutions along parameters: followed through folds, traced as curves, found beside each other, the best of them.

`arclength` follows any F(u, p) = 0; `tracing` is a curve of replica-symmetric solutions with its nodes (`hermite`
interpolates), `further` finds other solutions at one point; `bayes_line`, `bayes_follow` and `bayes_phase`
are the same for the Bayes-optimal level. `minimise` looks for the least risk over parameters, `stable_side` for the
best where replica symmetry holds. The verbs are `curve`, `branch`, `phase`, `bayes` and `optimal`.
"""
