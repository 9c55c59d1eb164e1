"""Gaussian calculus: laws of fields, the rules of averages, and closed forms built from them."""
