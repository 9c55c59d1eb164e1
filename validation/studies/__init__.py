"""Studies: many trainings and one table, map or report, which can be interrupted and taken up again.

`paper` is the comparison at the paper's size, `discrepancy` where theory and training part, `embeddings` real tokens
against Gaussian ones; `cost` refuses what no machine at hand can do.
"""
