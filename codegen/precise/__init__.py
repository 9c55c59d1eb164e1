"""More digits than double precision has: `saddle` solves, `kernel` has the programs, `arb` numbers with bounds."""
