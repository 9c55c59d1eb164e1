"""Side-by-side measurements; `make bench` runs them all and prints one table each."""
