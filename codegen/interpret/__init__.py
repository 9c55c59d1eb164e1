"""Numbers straight from expressions, without a generated module.

`functions` turns expressions into NumPy functions; `oracle` runs kernels in mpmath, the reference of every emitter.
"""
