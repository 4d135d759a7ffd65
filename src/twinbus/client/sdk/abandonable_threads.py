"""Threads for several calls at a time, for which nobody waits who is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def leavable_pool(threads: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """All calls have ended when the block ends; not so when it is left by an exception, as by Ctrl-C.

    The pool's own `with` would wait for them there too: for silent namespaces, as long as they may be silent.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
