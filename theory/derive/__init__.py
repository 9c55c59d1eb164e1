"""The derivations, one file a level: population, replica symmetric, stability, Bayes-optimal, and what they share."""
