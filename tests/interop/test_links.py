"""Links of the sync SDK against real namespaces, peers that say nothing, and bytes that make no sense."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError
from wire_relay import Relay

from twinbus.client.namespace import Namespace
from twinbus.client.sdk.failures import LinkFailed
from twinbus.client.sdk.watchdog import Watchdog
from twinbus.client.sync.links import SenderLink, try_receiver
from twinbus.pairing.sending.failure import FailureKind
from twinbus.testing import LocalNamespace

WAIT_S = 30
SOON_S = 0.5
SLACK_S = 20
"""More than a busy machine needs to notice that the time is over."""
SDK_READ_S = 0.15
"""A little less than what a read of the SDK's waits for."""
GRACE_S = 20
"""For threads and sockets to go away after a link was discarded."""


@pytest.fixture(scope="module")
def local() -> Iterator[LocalNamespace]:
    with LocalNamespace("contoso", queues=["orders", "invoices"]) as running:
        yield running


@pytest.fixture
def namespace(local: LocalNamespace) -> Iterator[Namespace]:
    yield Namespace.from_connection_string(local.connection_string)
    local.faults.clear()


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    dog = Watchdog()
    yield dog
    dog.stop()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Takes connections, as the kernel does, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """Does not even take connections: what knocks there is not answered, as behind a firewall that drops."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = [_knock(port) for _ in range(4)]  # the kernel's queue is full now
        yield port
        for one in waiting:
            one.close()


def _knock(port: int) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", port))
    return one


def opened(namespace: Namespace, watchdog: Watchdog, queue: str = "orders") -> SenderLink:
    return SenderLink.open(namespace.sync_client(), queue, deadline_s=WAIT_S, watchdog=watchdog)


def at(port: int, credential: Any, *, tls: bool = False) -> Namespace:
    return Namespace(f"127.0.0.1:{port}", credential, name="contoso", use_tls=tls)


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GRACE_S
    while not is_true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def our_threads() -> list[str]:
    """Those that links start; the namespaces of the tests have threads too."""
    mine = ("twinbus-open-", "twinbus-close-", "twinbus-keep-", "twinbus-watchdog", "twinbus-token")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(mine)]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def taken_from(namespace: Namespace, queue: str = "orders") -> list[str]:
    """What is in a queue; it is empty afterwards."""
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with namespace.sync_client() as client, client.get_queue_receiver(queue, receive_mode=mode) as receiver:
        found = [str(message) for message in receiver.peek_messages(100)]
        while any(
            message.state is ServiceBusMessageState.ACTIVE for message in receiver.peek_messages(100, sequence_number=1)
        ):
            receiver.receive_messages(100, max_wait_time=0.2)
        return found


# --- what links are for ---


def test_an_open_link_sends_schedules_and_cancels(namespace: Namespace, watchdog: Watchdog) -> None:
    link = opened(namespace, watchdog, "invoices")
    assert link.max_batch_bytes == 262_144
    link.send(ServiceBusMessage("1"), WAIT_S)
    link.send([ServiceBusMessage("2"), ServiceBusMessage("3")], WAIT_S)
    when = datetime.now(UTC) + timedelta(hours=1)
    numbers = link.schedule([ServiceBusMessage("later"), ServiceBusMessage("never")], when, WAIT_S)
    link.cancel(numbers[1:], WAIT_S)
    with pytest.raises(LinkFailed) as failed:
        link.cancel(numbers[1:], WAIT_S)
    assert failed.value.failure.kind is FailureKind.REJECTED
    link.discard()
    assert taken_from(namespace, "invoices") == ["1", "2", "3", "later"]


def test_messages_go_over_tls_on_any_port(local: LocalNamespace, watchdog: Watchdog) -> None:
    text = local.connection_string.replace("UseDevelopmentEmulator=true;", "")
    namespace = Namespace.from_connection_string(text)
    link = opened(namespace, watchdog)
    link.send(ServiceBusMessage("x" * 200_000), WAIT_S)
    link.discard()
    with namespace.admin_client() as admin:
        assert admin.get_queue("orders").name == "orders"
    assert taken_from(namespace) == ["x" * 200_000]


def test_a_link_is_open_in_much_less_time_than_the_sdk_takes(namespace: Namespace, watchdog: Watchdog) -> None:
    took_s = []
    for _ in range(10):
        began = time.monotonic()
        opened(namespace, watchdog).discard()
        took_s.append(time.monotonic() - began)
    assert min(took_s) < 0.45, "whatever else the machine does"


def test_a_queue_that_can_be_listened_to_is_distinguished_from_others(
    local: LocalNamespace, watchdog: Watchdog
) -> None:
    client = Namespace.from_connection_string(local.connection_string).sync_client()
    try_receiver(client, "orders", deadline_s=WAIT_S, watchdog=watchdog)
    with pytest.raises(LinkFailed) as failed:
        try_receiver(client, "missing", deadline_s=WAIT_S, watchdog=watchdog)
    assert failed.value.failure.kind is FailureKind.NOT_FOUND


# --- who does not answer ---


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("open_link", [SenderLink.open, try_receiver])
def test_a_peer_that_says_nothing_is_not_waited_for(
    namespace: Namespace, watchdog: Watchdog, silent_port: int, tls: bool, open_link: Any
) -> None:
    client = at(silent_port, namespace.credential, tls=tls).sync_client(8 * SOON_S)  # its time is not over first
    files, began = open_files(), time.monotonic()
    with pytest.raises(LinkFailed) as failed:
        open_link(client, "orders", deadline_s=SOON_S, watchdog=watchdog)
    assert time.monotonic() - began < SOON_S + SLACK_S
    assert (failed.value.failure.kind, failed.value.failure.is_connection) == (FailureKind.NO_ANSWER, True)
    wait_until(lambda: our_threads() == ["twinbus-watchdog"])
    wait_until(lambda: open_files() <= files)


def test_a_peer_that_drops_what_knocks_is_not_waited_for(
    namespace: Namespace, watchdog: Watchdog, deaf_port: int
) -> None:
    client = at(deaf_port, namespace.credential).sync_client()
    began = time.monotonic()
    with pytest.raises(LinkFailed) as failed:
        SenderLink.open(client, "orders", deadline_s=SOON_S, watchdog=watchdog)
    assert time.monotonic() - began < SOON_S + SLACK_S
    assert failed.value.failure.kind is FailureKind.NO_ANSWER
    wait_until(lambda: our_threads() == ["twinbus-watchdog"])


def test_a_link_that_opens_too_late_closes_itself(
    local: LocalNamespace, namespace: Namespace, watchdog: Watchdog
) -> None:
    local.faults.add("slow", entities=["orders"], delay=timedelta(seconds=8 * SOON_S))
    files = open_files()
    with pytest.raises(LinkFailed) as failed:
        SenderLink.open(namespace.sync_client(), "orders", deadline_s=4 * SOON_S, watchdog=watchdog)
    assert "orders did not answer" in failed.value.failure.text
    wait_until(lambda: our_threads() == ["twinbus-watchdog"])
    wait_until(lambda: open_files() <= files)


def test_a_credential_that_hangs_is_not_waited_for(local: LocalNamespace, watchdog: Watchdog) -> None:
    may_end = threading.Event()

    class Hanging:
        def get_token(self, *scopes: str, **options: Any) -> AccessToken:
            may_end.wait(WAIT_S)
            return AccessToken("", 0)

    client = at(local.port, Hanging()).sync_client(SOON_S)
    with pytest.raises(LinkFailed) as failed:
        SenderLink.open(client, "orders", deadline_s=WAIT_S, watchdog=watchdog)
    assert failed.value.failure.kind is FailureKind.NO_ANSWER
    assert "gave no token within 0.5 s" in failed.value.failure.text
    may_end.set()
    wait_until(lambda: our_threads() == ["twinbus-watchdog"])


# --- where the SDK's own time-out does not reach ---


@pytest.fixture
def relay(local: LocalNamespace) -> Iterator[Relay]:
    with Relay(local.port) as running:
        yield running


class Drip:
    """Says a frame byte by byte, so that every read of the SDK gets something and none gets enough."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._last = 0.0
        self.longest_s = 0.0
        """The longest pause it made: on a machine that stalls, one in which the SDK looks at its clock."""

    def _run(self) -> None:
        self._say(bytes.fromhex("00010000 02000000"))
        while not self._is_over.wait(0.05):
            self._say(b"\0")
        self._say(b"")

    def _say(self, data: bytes) -> None:
        self._relay.say(data)
        now = time.monotonic()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now

    def __enter__(self) -> Drip:
        self._last = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def test_bytes_that_drip_make_the_sdk_hang_despite_its_time_out(namespace: Namespace, relay: Relay) -> None:
    """If this fails, the SDK has learned something, and the watchdog is less needed."""
    sender = at(relay.port, namespace.credential).sync_client().get_queue_sender("orders").__enter__()
    relay.go_silent()

    def send() -> None:
        with contextlib.suppress(ServiceBusError):
            sender.send_messages(ServiceBusMessage("42"), timeout=SOON_S)

    with Drip(relay) as drip:
        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        sending.join(SOON_S + 3)
        hangs = sending.is_alive()
        relay.__exit__(None, None, None)
        sending.join(WAIT_S)
    sender.close()
    assert taken_from(namespace) == ["42"]
    assert hangs or drip.longest_s > SDK_READ_S, "a pause long enough for a read of the SDK's to end"


def test_the_watchdog_ends_a_send_that_hangs(namespace: Namespace, relay: Relay, watchdog: Watchdog) -> None:
    link = opened(at(relay.port, namespace.credential), watchdog)
    link.send(ServiceBusMessage("before"), WAIT_S)
    relay.go_silent()
    with Drip(relay) as drip:
        began = time.monotonic()
        with pytest.raises(LinkFailed) as failed:
            link.send(ServiceBusMessage("during"), SOON_S)
        assert time.monotonic() - began < SOON_S + SLACK_S
    assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (FailureKind.NO_ANSWER, True)
    assert not link.is_usable or drip.longest_s > SDK_READ_S, "a pause long enough for a read of the SDK's to end"
    link.discard()
    assert taken_from(namespace) == ["before", "during"]


def test_the_watchdog_ends_a_send_on_the_callers_own_terms(
    namespace: Namespace, relay: Relay, watchdog: Watchdog
) -> None:
    """As the fast path does it: no method of ours around the SDK's."""
    link = opened(at(relay.port, namespace.credential), watchdog)
    relay.go_silent()
    with Drip(relay):
        link.busy_until = time.monotonic() + SOON_S
        with pytest.raises(ServiceBusError) as raised:
            link.sender.send_messages(ServiceBusMessage("42"), timeout=SOON_S)
        link.busy_until = None
    failure = link.failure_of(raised.value)
    assert (failure.kind, failure.in_doubt) == (FailureKind.NO_ANSWER, True)
    link.discard()
    assert taken_from(namespace) == ["42"]


def test_a_token_that_cannot_be_renewed_does_not_hold_up_a_send(
    namespace: Namespace, relay: Relay, watchdog: Watchdog
) -> None:
    """The SDK renews it about once an hour, before the transfer of whoever sends just then."""
    link = opened(at(relay.port, namespace.credential), watchdog)
    authenticator: Any = link.sender._handler._cbs_authenticator
    authenticator._expires_on, authenticator._refresh_window = int(time.time()) + 60, 120
    relay.go_silent()
    began = time.monotonic()
    with pytest.raises(LinkFailed) as failed:
        link.send(ServiceBusMessage("42"), SOON_S)
    assert time.monotonic() - began < SOON_S + SLACK_S
    assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (FailureKind.NO_ANSWER, False)
    link.discard()
    assert taken_from(namespace) == []


def test_a_connection_over_tls_can_be_cut_too(local: LocalNamespace, watchdog: Watchdog) -> None:
    with Relay(local.port) as relay:
        text = local.connection_string.replace("UseDevelopmentEmulator=true;", "")
        text = text.replace(f":{local.port}", f":{relay.port}")
        link = opened(Namespace.from_connection_string(text), watchdog)
        relay.go_silent()
        before = len(relay.said)

        def cut_what_was_sent() -> None:
            wait_until(lambda: len(relay.said) > before)
            link.cut()

        threading.Thread(target=cut_what_was_sent, daemon=True).start()
        with pytest.raises(LinkFailed) as failed:
            link.send(ServiceBusMessage("42"), WAIT_S)
        assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (FailureKind.NO_ANSWER, True)
        link.discard()
    taken_from(Namespace.from_connection_string(local.connection_string))


def test_a_request_that_is_not_answered_is_not_waited_for(
    namespace: Namespace, relay: Relay, watchdog: Watchdog
) -> None:
    link = opened(at(relay.port, namespace.credential), watchdog)
    relay.go_silent()
    began = time.monotonic()
    with pytest.raises(LinkFailed) as failed:
        link.schedule(ServiceBusMessage("42"), datetime.now(UTC) + timedelta(hours=1), SOON_S)
    assert time.monotonic() - began < SOON_S + SLACK_S
    assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (FailureKind.NO_ANSWER, True)
    link.discard()


# --- links that are over ---


def test_a_link_whose_peer_hung_up_is_known_to_be_dead(
    local: LocalNamespace, namespace: Namespace, watchdog: Watchdog
) -> None:
    link = opened(namespace, watchdog)
    assert link.is_alive
    local.faults.add("unreachable", how="drop")
    wait_until(lambda: not link.is_alive)
    link.discard()


def test_a_closed_link_is_not_opened_again_by_a_send(
    local: LocalNamespace, namespace: Namespace, watchdog: Watchdog
) -> None:
    link = opened(namespace, watchdog)
    local.faults.add("refuse", condition="amqp:internal-error", on="sends", entities=["orders"], count=1)
    with pytest.raises(LinkFailed):
        link.send(ServiceBusMessage("42"), WAIT_S)
    with pytest.raises(LinkFailed) as failed:
        link.send(ServiceBusMessage("43"), WAIT_S)
    assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (FailureKind.UNREACHABLE, False)
    link.discard()
    assert taken_from(namespace) == []


@pytest.mark.parametrize("how", ["well", "refuse", "drop", "silent"])
def test_nothing_is_left_of_a_link_that_was_discarded(
    local: LocalNamespace, namespace: Namespace, watchdog: Watchdog, how: str
) -> None:
    wait_until(lambda: our_threads() == [])
    files = open_files()
    links = [opened(namespace, watchdog) for _ in range(3)]
    if how != "well":
        local.faults.add("unreachable", how=how)
    began = time.monotonic()
    for link in links:
        link.discard()
        link.discard()
    assert time.monotonic() - began < SLACK_S
    wait_until(lambda: our_threads() == ["twinbus-watchdog"])
    watchdog.stop()
    wait_until(lambda: our_threads() == [])
    local.faults.clear()
    wait_until(lambda: open_files() <= files)


def test_a_link_that_hangs_can_be_discarded_by_somebody_else(
    namespace: Namespace, relay: Relay, watchdog: Watchdog
) -> None:
    link = opened(at(relay.port, namespace.credential), watchdog)
    relay.go_silent()
    failures: list[FailureKind] = []

    def send() -> None:
        try:
            link.send(ServiceBusMessage("42"), WAIT_S)
        except LinkFailed as failed:
            failures.append(failed.failure.kind)

    with Drip(relay):
        sending = threading.Thread(target=send)
        sending.start()
        wait_until(lambda: link.busy_until is not None)
        link.discard()
        sending.join(SLACK_S + GRACE_S)
    assert not sending.is_alive()
    assert failures != []
    taken_from(namespace)
