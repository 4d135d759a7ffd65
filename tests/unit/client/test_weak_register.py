"""Senders and receivers come and go on many threads while others look at the client."""

from __future__ import annotations

import gc
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count

import pytest

import twinbus.aio
from twinbus import PairedServiceBusClient
from twinbus.client.core.weak_register import WeakRegister

PRIMARY, SECONDARY = (
    f"Endpoint=sb://{name}.example;SharedAccessKeyName=k;SharedAccessKey=a2V5" for name in ("contoso", "backup")
)
LOOKS, COMINGS = 200, 2_000


class Member:
    pass


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def look_while_others_come_and_go(come: Callable[[], object], look: Callable[[], object]) -> None:
    """Raises what `look` raises."""
    is_over, enough, came = threading.Event(), threading.Event(), count()

    def crowd() -> None:
        some = deque[object](maxlen=300)
        while not is_over.is_set():
            some.append(come())
            if next(came) == COMINGS:
                enough.set()

    threads = [threading.Thread(target=crowd) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        looks = count(1)
        while next(looks) < LOOKS or not enough.is_set():
            look()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def test_who_is_gone_is_forgotten() -> None:
    register, stays, goes = WeakRegister[Member](), Member(), Member()
    register.add(stays)
    register.add(stays)
    register.add(goes)
    assert set(register.all()) == {stays, goes}
    del goes
    gc.collect()
    assert register.all() == [stays]


def test_who_takes_the_place_of_somebody_in_memory_is_there() -> None:
    register = WeakRegister[Member]()
    for _ in range(100):
        member = Member()
        register.add(member)
        assert register.all() == [member]
        del member


@pytest.mark.usefixtures("hasty_threads")
def test_a_register_can_be_looked_at_while_others_come_and_go() -> None:
    register = WeakRegister[Member]()

    def come() -> Member:
        register.add(member := Member())
        return member

    look_while_others_come_and_go(come, register.all)


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("kind", [PairedServiceBusClient, twinbus.aio.PairedServiceBusClient])
def test_a_status_can_be_had_while_others_get_senders(
    kind: type[PairedServiceBusClient | twinbus.aio.PairedServiceBusClient],
) -> None:
    bus = kind.from_connection_strings(PRIMARY, SECONDARY)
    look_while_others_come_and_go(lambda: bus.get_queue_sender("orders"), bus.status)
