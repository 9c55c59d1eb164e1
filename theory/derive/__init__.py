"""The derivations: what is true of a model at each level, handed on as frozen systems.

`saddle` is the replica-symmetric system, from `replica` (the free energy), `channel`, `pieces` and `residual` (values
eliminated), `label`, `location` and `spectrum` (laws of the label, of the hidden token, of the tokens), `gains`,
`curvature`, `stability` and `sensitivity` (its derivatives). `population` and `optimum` are infinite data, `bayes`,
`bayes_prior` and `nishimori` the Bayes-optimal level, `rsb` and `hierarchy` one step of breaking, `dynamics`,
`descent_closed` and `factorised` training.
"""
