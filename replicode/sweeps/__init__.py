"""Sweeps: many points of one verb or several, on all cores or a cluster, in a ledger that survives whatever happens.

`config` reads tables of values into points (`point`), `pool` has them computed (`job` is what a worker runs), the
ledger of `validation/ledger.py` keeps every row as soon as it is there, `progress` tells how far it is, `export` writes
them out as one table. `replicode.verbs.sweep` is the verb.
"""
