"""What is true of an activation: symbolic properties, domain, kinks, and the analysis that gathers them."""
