"""NumPy emitter, fast emitter and hand-written kernels on the same nodes: one evaluation of the channel averages."""

from __future__ import annotations

import numpy as np

from benchmarks.handwritten import c_sums, numpy_sums
from benchmarks.modules import POINT, modules
from benchmarks.timing import interleaved, table


def run():
    plain, fast = modules("softmax", 2)
    order = np.array([0.5, 0.4, 0.6, 0.7, 0.6, 0.5])
    setting = plain.Setting(POINT["nu"], POINT["noise"], plain.parameter_values({}))
    channel = plain.ProxFreeChannel.at_level(5, setting)
    channel.adapt(order)
    frame, by_hand = channel._frame(order), c_sums()
    functions = {
        "hand-written NumPy, for two tokens": lambda: numpy_sums(channel, order, frame),
        "NumPy emitter": lambda: channel._total(order, frame),
        "hand-written C, for two tokens": lambda: by_hand(channel, order, frame),
        "fast emitter": lambda: fast.ProxFreeChannel._total(channel, order, frame),
    }
    seconds, sums = interleaved(functions, 9)
    first, *others = sums.values()
    assert all(np.allclose(first, other, rtol=1e-11, atol=1e-13) for other in others)
    count = channel.weights.size
    print(f"## Emitters: softmax, L = 2, channel averages on {count} nodes\n")
    numpy_hand, c_hand = (seconds[k] for k in ("hand-written NumPy, for two tokens", "hand-written C, for two tokens"))
    rows = [(k, f"{s / count * 1e9:.1f}", f"{s / numpy_hand:.2f}", f"{s / c_hand:.2f}") for k, s in seconds.items()]
    table(("what", "ns per node", "over hand-written NumPy", "over hand-written C"), rows)
