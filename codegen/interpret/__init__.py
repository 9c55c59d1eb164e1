"""Numbers straight from expressions, without a generated module.

`functions` turns expressions into NumPy functions; `averages`, `hardmax` and `sampled` average functions of the scores;
`population` has the infinite-data level at free parameters; `oracle` runs kernels in mpmath, the reference of every
emitter.
"""
