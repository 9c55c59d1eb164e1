"""How it is computed: a derived system becomes a standalone module.

`compiler` has the stages, `ir` what is handed between them, `link` puts in the run-time parts that a module needs and
`contract` reads what they declare. `rewrite` makes expressions stable, `lower` turns systems into IR, one file a level,
`emit` prints it, `runtime` is the numerical source itself. `loading` loads a module, `compiled` runs its kernels in C,
`precise` takes its solution to more digits, `interpret` evaluates expressions without a module. `threads` and `writing`
serve all rooms.
"""
