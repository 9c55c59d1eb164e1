"""The derivation written down as numbered steps: `steps` puts the parts together.

`activation`, `fields`, `replicas`, `saddle` and `curvature` are those of the replica-symmetric level; `bayes`, `rsb`
and `dynamics` those of the others.
"""
