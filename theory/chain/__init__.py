"""The derivation written down, part by part: `replicode.theory.chain.steps` puts the parts together."""
