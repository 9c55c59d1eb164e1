"""Gaussian calculus: `laws` of the fields, `rules` of averages, and what is built from them.

`expectation` averages an expression, reading it as `terms` that rules know, with the functions of `special`; `sequence`
averages products over tokens, `moments` powers; `closed` are the closed forms.
"""
