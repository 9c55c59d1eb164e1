"""One thread for BLAS, where products are so small or so many that a pool of threads costs more than it gives.

Threads of a pool wait for each other by spinning. Beside other processes that is most of the time: a hundred times what
the products themselves take. `@one_thread()` above a function, or `with one_thread():` around a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS and LAPACK use the calling thread alone until the end of the block."""
    with threadpool_limits(1, "blas"):
        yield
