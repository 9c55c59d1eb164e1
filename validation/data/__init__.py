"""Data: what attention is trained on, and the theory of tokens that are not Gaussian.

`sampling` draws data sets with their teachers, `scores` the hidden token, `spectrum` structured tokens and teachers of
exact weights; `pool` reads real tokens.
"""
