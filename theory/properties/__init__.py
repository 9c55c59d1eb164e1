"""What is true of an activation: `symbolic` properties, `domain`, `kinks`, and of a `loss`; `analysis` gathers them."""
