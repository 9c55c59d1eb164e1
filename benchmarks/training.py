"""Training at the paper's size: a gradient against two reads of the data, and L-BFGS against PyTorch's own.

`python -m benchmarks.training [sqrt(N D)]` runs it alone; 10^4, the paper's size, needs about 1.5 GB. Times are wall
times, the least of a few interleaved rounds, since matrix products use all the threads that NumPy was given. PyTorch
is given as many.
"""

from __future__ import annotations

import resource
import sys
import time
from contextlib import suppress
from math import sqrt

import numpy as np

from benchmarks.timing import table
from replicode.modules import module_for
from replicode.validation.module import GeneratedAttention
from replicode.validation.training.attention import objective
from replicode.validation.training.methods import Lbfgs, relative_gradient_norm
from replicode.validation.training.train import train

SIZE = 1e4
ALPHA, NU, NOISE, LAMBDAS = 4.0, 2.0, 0.3, (1.0, 1.0)
TOKENS = 3
TARGETS = (1e-3, 1e-4, 1e-5)


def interleaved_walls(functions, rounds=3):
    """Least wall time of each function by name, taking turns."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            begin = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


class Watched:
    """Seconds from the beginning to the first point of each relative gradient norm; the watching is not counted."""

    def __init__(self):
        self.times, self.evaluations, self.least, self.lost = {}, 0, float("inf"), 0.0
        self.begin = time.perf_counter()

    def see(self, params, value, gradient):
        now = time.perf_counter()
        norm = relative_gradient_norm(params, value, gradient)
        self.evaluations += 1
        self.least = min(self.least, norm)
        for target in TARGETS:
            if norm <= target:
                self.times.setdefault(target, (now - self.begin - self.lost, self.evaluations))
        self.lost += time.perf_counter() - now


class WatchedLbfgs(Lbfgs):
    """scipy's L-BFGS as in training, watched."""

    def minimise(self, function, params, tolerance):
        self.__dict__["watched"] = watched = Watched()

        def seen(point):
            value, gradient = function(point)
            watched.see(point, value, gradient)
            return value, gradient

        return super().minimise(seen, params, tolerance)


def ours(dataset, attention, seed):
    method = WatchedLbfgs()
    train(dataset, attention, LAMBDAS, attention.start("informed"), np.random.default_rng(seed), method=method)
    return method.watched


def torch_lbfgs(torch, dataset, attention, seed, precise_loss):
    """torch.optim.LBFGS with its strong Wolfe line search on the same data, which are shared and not copied."""
    (batch,) = dataset.batches
    count, tokens, dim = batch.X.shape
    rows = torch.from_numpy(batch.X.reshape(-1, dim))
    kind = torch.float64 if precise_loss else torch.float32
    y = torch.from_numpy(batch.y).to(kind)
    start = attention.start("informed").draw(np.random.default_rng(seed), dataset)
    k, v = (torch.tensor(part, dtype=torch.float32, requires_grad=True) for part in np.split(start, 2))
    settings = {"max_iter": 200, "max_eval": 400, "history_size": 20, "tolerance_grad": 0.0, "tolerance_change": 0.0}
    optimiser = torch.optim.LBFGS([k, v], line_search_fn="strong_wolfe", **settings)
    watched = Watched()

    def closure():
        optimiser.zero_grad()
        chi, z = ((rows @ w).reshape(count, tokens).to(kind) / sqrt(dim) for w in (k, v))
        residual = y - (torch.softmax(chi, dim=1) * z).sum(dim=1)
        value = 0.5 * (residual @ residual + LAMBDAS[0] * (k @ k).to(kind) + LAMBDAS[1] * (v @ v).to(kind))
        value.backward()
        point, gradient = (torch.cat(pair).double().numpy() for pair in ([k.detach(), v.detach()], [k.grad, v.grad]))
        watched.see(point, float(value.detach()), gradient)
        if watched.least <= TARGETS[-1] or watched.evaluations > 120:
            raise StopIteration
        return value

    with suppress(StopIteration):
        optimiser.step(closure)
    return watched


def gradient_table(dataset, attention):
    (batch,) = dataset.batches
    rows = batch.X.reshape(-1, dataset.dim)
    ones = np.ones(dataset.dim, dtype=rows.dtype)
    params = attention.start("informed").draw(np.random.default_rng(1), dataset)
    functions = {
        "read of X: float32 matrix-vector product": lambda: rows @ ones,
        "read of X: float32 sum": rows.sum,
        "objective and gradient": lambda: objective(params, dataset, attention, *LAMBDAS),
    }
    seconds = interleaved_walls(functions, 7)
    bound = 2 * min(seconds[name] for name in functions if name.startswith("read"))
    shape = f"N = {batch.y.size}, D = {dataset.dim}, L = {TOKENS}"
    print(f"## Training: one gradient against two reads of the data, softmax, {shape}\n")
    rate = rows.nbytes / 1e9
    cells = [(name, f"{s:.3g}", f"{rate / s:.3g}", f"{s / bound:.2f}") for name, s in seconds.items()]
    table(("what", "time (s)", "GB of X per second", "over two reads"), cells)


def training_table(dataset, attention, rounds=2):
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: the comparison with its L-BFGS is skipped (pip install torch).\n")
        return
    runs = {"this trainer (scipy L-BFGS)": lambda: ours(dataset, attention, 1)}
    for name, precise in (("torch.optim.LBFGS", False), ("the same, loss summed in double", True)):
        runs[name] = lambda precise=precise: torch_lbfgs(torch, dataset, attention, 1, precise)
    found = {name: [] for name in runs}
    for _ in range(rounds):
        for name, function in runs.items():
            found[name].append(function())
    print(f"## Training: time to a relative gradient norm, against PyTorch {torch.__version__}, same data and start\n")
    print(f"Threads of PyTorch: {torch.get_num_threads()}. In brackets the evaluations of objective and gradient.\n")
    first = found["this trainer (scipy L-BFGS)"]
    rows = []
    for name, watches in found.items():
        cells = [_reached(watches, target, first) for target in TARGETS]
        rows.append((name, *cells, f"{min(w.least for w in watches):.1e}"))
    table(("what", *(f"to {target:g} (s), over ours" for target in TARGETS), "least norm"), rows)


def _reached(watches, target, first):
    times = [w.times[target] for w in watches if target in w.times]
    if not times:
        return "not reached"
    seconds, evaluations = min(times)
    ratio = seconds / min(w.times[target][0] for w in first)
    return f"{seconds:.2f} ({evaluations}), {ratio:.2f}"


def run(size=SIZE):
    module, _ = module_for("softmax", "spiked", TOKENS)
    attention = GeneratedAttention(module, NU, NOISE, np.array([]))
    dim = round(size / sqrt(ALPHA))
    rng = np.random.default_rng(2509)
    begin = time.perf_counter()
    dataset = attention.setting(ALPHA, single=True).sampler(dim, rng).draw(rng)
    drawn = time.perf_counter() - begin
    gradient_table(dataset, attention)
    training_table(dataset, attention)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"Data drawn in {drawn:.1f} s. Largest memory of the process so far: {peak:.2f} GB.\n")


if __name__ == "__main__":
    run(float(sys.argv[1]) if len(sys.argv) > 1 else SIZE)
