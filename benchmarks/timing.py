"""Timing on a shared machine: processor time, best of several interleaved rounds."""

from __future__ import annotations

import time


def interleaved(functions, rounds=3):
    """Least processor time of each function by name, taking turns, and what each returned last."""
    best = dict.fromkeys(functions, float("inf"))
    results = {}
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.process_time()
            results[name] = function()
            best[name] = min(best[name], time.process_time() - begin)
    return best, results


def once(function):
    """Processor time of one call, and its result."""
    begin = time.process_time()
    result = function()
    return time.process_time() - begin, result


def table(header, rows):
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)
    print(flush=True)
