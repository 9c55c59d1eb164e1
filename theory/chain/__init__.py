"""The derivation written down, part by part: `theory.chain.steps` puts the parts together."""
