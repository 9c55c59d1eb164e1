"""Whether it is so: sampled data, trained attention, and the statistics that compare them with a theory.

`experiment` is the comparison that `replicode validate` reports; it takes `data`, `training` and `statistics`. `amp`
and `landscape` compare two further theories; `properties` is the suite of `replicode check`, with `pytest_plugin` and
`strategies` for the tests of others; `studies` are long. `module` reads a generated module, `bayes` makes that of the
Bayes-optimal level, `ledger` keeps what is done.
"""
