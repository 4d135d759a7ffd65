"""Calls of an asyncio loop are answered, and nobody waits for them at the end of a process."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest

from twinbus.storage.daemon_pool import DaemonPool

EXIT_S_MAX = 60


def test_every_call_is_answered_by_a_few_daemons() -> None:
    pool, are_there = DaemonPool(3), threading.Barrier(3)
    at_work: set[threading.Thread] = set()
    seen: set[threading.Thread] = set()
    most: list[int] = []

    def work(number: int, *, times: int) -> int:
        at_work.add(threading.current_thread())
        seen.add(threading.current_thread())
        if number < 3:
            are_there.wait(20)  # all three work at once
        most.append(len(at_work))
        at_work.discard(threading.current_thread())
        return number * times

    answers = [pool.submit(work, number, times=2) for number in range(50)]
    assert [each.result(20) for each in answers] == [number * 2 for number in range(50)]
    assert max(most) == 3
    assert all(each.daemon for each in seen)
    for each in seen:
        each.join(20)
    assert pool.submit(work, 10, times=1).result(20) == 10, "they have ended, and there is another"


def test_what_a_call_raises_is_raised_where_its_answer_is_wanted() -> None:
    pool = DaemonPool(1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(20)
    assert pool.submit(lambda: 1).result(20) == 1


def test_a_call_that_was_cancelled_is_not_made() -> None:
    pool, goes_on, calls = DaemonPool(1), threading.Event(), list[int]()
    first: Future[bool] = pool.submit(goes_on.wait, 20)
    second, third = pool.submit(calls.append, 2), pool.submit(calls.append, 3)
    assert second.cancel()
    goes_on.set()
    assert first.result(20)
    third.result(20)
    assert calls == [3]


def test_a_loop_looks_up_names_with_it() -> None:
    async def look_up() -> int:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(DaemonPool())
        return len(await loop.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM))

    assert asyncio.run(look_up()) == 1


def test_a_process_ends_while_a_call_hangs() -> None:
    program = "import threading; from twinbus.storage.daemon_pool import DaemonPool; DaemonPool().submit(HANG)"
    hang = "threading.Event().wait"
    subprocess.run([sys.executable, "-c", program.replace("HANG", hang)], timeout=EXIT_S_MAX, check=True)
