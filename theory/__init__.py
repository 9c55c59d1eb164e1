"""What is true: languages, Gaussian calculus, replica derivation, saddle equations, population risk. SymPy only."""
