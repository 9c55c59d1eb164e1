"""Run every benchmark in one process, so that ratios compare like with like."""

from benchmarks import accuracy, curves, emitters, scaling, sweep, threads, training

print("# Benchmarks\n")
print("Printed by `make bench` in one run on two shared cores; read the ratios, not the seconds. Times are processor")
print(
    "time, the least of a few interleaved rounds, of warm calls: import, derivation and compilation are not in them.\n"
)
accuracy.run()
emitters.run()
scaling.against_tokens()
scaling.against_digits()
scaling.derivation()
curves.run()
training.run()
threads.run()
sweep.run()
