"""Rewriting of expressions before they are printed, so that values are stable and few operations are left.

`stable` takes sums over tokens relative to their largest term, on log scales (`scales`) and with nodes that are
recognised in what was typed (`recognise`); `unrolled` and `pair` write few tokens out. Lowering asks for all of it.
"""
