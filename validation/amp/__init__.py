"""Approximate message passing for the Bayes posterior, beside the state evolution that predicts it.

`passing` is the algorithm, `evidence` and `ranked` what one sequence tells it, `problem` the data and the risk of its
estimates, `evolution` its state evolution with errors.
"""
