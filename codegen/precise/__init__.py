"""More digits than double precision has.

`saddle` solves by Newton's method, on nodes that `scout` chooses in double precision; `integral` has the averages and
maps of a system, `kernel` its kernels as straight-line programs, `arb` numbers that carry a bound on their rounding.
"""
