"""How it is computed: typed IR, lowering, stable rewrites, quadrature, emitters, and the inlined run-time source."""
