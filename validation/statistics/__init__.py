"""Statistics: what is read off trained attention, and how it is compared with a theory.

`measure` reads overlaps and risks, `controls` takes off fluctuations of the data whose mean is known, `comparison`
extrapolates in 1/D and tests against a theory at a stated false-alarm rate.
"""
