"""Signals reach the event loop, whatever else wakes it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from pathlib import Path

import twinbus
from twinbus.cli.signals import on_signals

WAIT_S = 30


def fill(pipe: socket.socket) -> None:
    """As threads do that call into a loop that is busy for long."""
    try:
        while True:
            pipe.send(b"\0" * 4096)
    except BlockingIOError:
        pass


async def test_a_signal_is_heard_although_the_pipe_that_wakes_the_loop_is_full() -> None:
    heard = asyncio.Event()
    with on_signals({signal.SIGUSR1: heard.set}):
        fill(asyncio.get_running_loop()._csock)  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), WAIT_S)


async def test_a_signal_wakes_a_loop_that_sleeps_whichever_thread_gets_it() -> None:
    heard = asyncio.Event()
    with on_signals({signal.SIGUSR1: heard.set}):
        other = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1))
        other.start()
        await asyncio.wait_for(heard.wait(), WAIT_S)
        other.join()


async def test_afterwards_signals_do_what_they_did_by_default() -> None:
    with on_signals({signal.SIGUSR1: lambda: None, signal.SIGINT: lambda: None}):
        pass
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_no_other_module_relies_on_the_pipe_that_wakes_the_loop() -> None:
    sources = Path(twinbus.__file__).parent.rglob("*.py")
    users = [path.name for path in sources if "add_signal_handler(" in path.read_text(encoding="utf-8")]
    assert users == ["signals.py"]
