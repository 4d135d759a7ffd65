"""Who opens a link and is interrupted meanwhile leaves nothing open."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from azure.servicebus import ServiceBusClient

from twinbus.client.sdk.watchdog import Watchdog
from twinbus.client.sync.links import _open_within

WAIT_S = 60
NAMESPACE = "Endpoint=sb://contoso.example;SharedAccessKeyName=k;SharedAccessKey=a2V5"


class OutOfTime(Exception):
    pass


@pytest.fixture(autouse=True)
def _limited() -> Iterator[None]:
    def give_up(*_: object) -> NoReturn:
        raise OutOfTime

    before = signal.signal(signal.SIGUSR1, give_up)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    dog = Watchdog()
    yield dog
    dog.stop()


def test_what_opens_after_its_opener_was_interrupted_is_closed(watchdog: Watchdog) -> None:
    goes_on, is_closed = threading.Event(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def open_slowly() -> None:
        signal.pthread_kill(main, signal.SIGUSR1)
        goes_on.wait(WAIT_S)

    sender: Any = ServiceBusClient.from_connection_string(NAMESPACE).get_queue_sender("orders")
    sender.__enter__, sender.close = open_slowly, is_closed.set
    with pytest.raises(OutOfTime):
        _open_within(sender, "orders", WAIT_S, watchdog)
    assert not is_closed.is_set(), "it is still being opened"
    goes_on.set()
    assert is_closed.wait(WAIT_S)
