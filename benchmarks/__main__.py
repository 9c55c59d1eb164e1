"""Run every benchmark in one process, so that ratios compare like with like."""

from benchmarks import spine

spine.run()
