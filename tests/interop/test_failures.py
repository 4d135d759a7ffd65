"""What every fault of a namespace looks like through the official SDK: the first column of the table of error classes.

Each case is tried four ways: a send on a link that was open before, and the opening of a link, with threads and with
asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusMessage

from twinbus.broker.entities.settings import QueueStatus
from twinbus.client.aio.links import SenderLink as AioSenderLink
from twinbus.client.aio.links import all_closed
from twinbus.client.namespace import Namespace
from twinbus.client.sdk.failures import LinkFailed
from twinbus.client.sdk.watchdog import Watchdog
from twinbus.client.sync.links import SenderLink
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.testing import LocalNamespace

OPEN_S = 30
SOON_S = 3.0
"""How long those are waited for who do not answer."""


class Seen(NamedTuple):
    """A failure in short."""

    kind: FailureKind
    condition: str | None = None
    in_doubt: bool = False
    is_connection: bool = False


class Case(NamedTuple):
    fault: str
    parameters: dict[str, Any]
    sending: Seen
    opening: Seen | None
    """None: can be opened."""


REFUSED = {
    "amqp:internal-error": FailureKind.INTERNAL,
    "com.microsoft:timeout": FailureKind.TIMED_OUT,
    "amqp:link:detach-forced": FailureKind.INTERNAL,
    "com.microsoft:operation-cancelled": FailureKind.INTERNAL,
    "com.microsoft:container-close": FailureKind.INTERNAL,
    "com.example:made-up": FailureKind.INTERNAL,
    "amqp:connection:forced": FailureKind.UNREACHABLE,
    "com.microsoft:entity-disabled": FailureKind.DISABLED,
    "amqp:resource-limit-exceeded": FailureKind.FULL,
    "amqp:resource-deleted": FailureKind.DELETED,
    "amqp:not-found": FailureKind.NOT_FOUND,
    "com.microsoft:server-busy": FailureKind.BUSY,
    "amqp:unauthorized-access": FailureKind.UNAUTHORISED,
    "com.microsoft:auth-failed": FailureKind.UNAUTHORISED,
    "amqp:link:message-size-exceeded": FailureKind.TOO_LARGE,
    "com.microsoft:argument-error": FailureKind.REJECTED,
    "com.microsoft:argument-out-of-range": FailureKind.REJECTED,
    "amqp:not-allowed": FailureKind.NOT_ALLOWED,
    "amqp:decode-error": FailureKind.REJECTED,
}

LOST = "amqp:socket-error"
ORDERS: dict[str, Any] = {"entities": ["orders"]}
DOWN = Seen(FailureKind.INTERNAL, "amqp:internal-error")
BUSY = Seen(FailureKind.BUSY, "com.microsoft:server-busy")
FORCED = Seen(FailureKind.INTERNAL, "amqp:link:detach-forced")
CUT_OFF = Seen(FailureKind.UNREACHABLE, LOST, is_connection=True)
CUT_OFF_IN_DOUBT = CUT_OFF._replace(in_doubt=True)
SILENT_IN_DOUBT = Seen(FailureKind.NO_ANSWER, in_doubt=True)

CASES = {
    "no-send": Case("no-send", ORDERS, DOWN, DOWN),
    "nobody listens": Case("unreachable", {"how": "refuse"}, CUT_OFF, CUT_OFF),
    "connections are reset": Case("unreachable", {"how": "drop"}, CUT_OFF, CUT_OFF),
    "silence": Case("unreachable", {"how": "silent"}, SILENT_IN_DOUBT, Seen(FailureKind.NO_ANSWER, is_connection=True)),
    "entity refuses": Case("unreachable", {"how": "refuse", **ORDERS}, FORCED, FORCED),
    "entity drops": Case("unreachable", {"how": "drop", **ORDERS}, CUT_OFF_IN_DOUBT, CUT_OFF),
    "entity is silent": Case("unreachable", {"how": "silent", **ORDERS}, SILENT_IN_DOUBT, Seen(FailureKind.NO_ANSWER)),
    "busy": Case("busy", ORDERS, BUSY, BUSY),
    "unanswered": Case("unanswered", ORDERS, SILENT_IN_DOUBT, None),
    "slow": Case("slow", {"delay": timedelta(minutes=1), **ORDERS}, SILENT_IN_DOUBT, Seen(FailureKind.NO_ANSWER)),
    "restart": Case("restart", {"length": timedelta(minutes=1), **ORDERS}, DOWN, DOWN),
} | {
    condition: Case(
        "refuse",
        {"condition": condition, "on": "sends", **ORDERS},
        Seen(kind, condition, in_doubt=kind is FailureKind.TIMED_OUT),
        Seen(kind, condition),
    )
    for condition, kind in REFUSED.items()
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(scope="module")
def local() -> Iterator[LocalNamespace]:
    keys = {"reader": "Listen", "other": "Send"}
    with LocalNamespace("contoso", rules=[f"{name}:{right}" for name, right in keys.items()]) as running:
        running.create_queue("orders")
        running.create_queue("disabled", status=QueueStatus.DISABLED)
        yield running


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    dog = Watchdog()
    yield dog
    dog.stop()


@pytest.fixture
def well(local: LocalNamespace) -> Iterator[LocalNamespace]:
    yield local
    local.faults.clear()


def seen(failure: Failure) -> Seen:
    assert failure.text
    assert "\n" not in failure.text
    assert failure.error is not None
    return Seen(failure.kind, failure.condition, failure.in_doubt, failure.is_connection)


def patience_s(expected: Seen) -> float:
    """Whoever does not answer is not waited for; whoever does may take his time on a busy machine."""
    return SOON_S if expected.kind is FailureKind.NO_ANSWER else OPEN_S


def add(local: LocalNamespace, case: Case) -> None:
    local.faults.add(case.fault, **case.parameters)


@each_case
def test_a_send_on_an_open_link_fails_as_it_should(well: LocalNamespace, watchdog: Watchdog, case: Case) -> None:
    client = Namespace.from_connection_string(well.connection_string).sync_client()
    link = SenderLink.open(client, "orders", deadline_s=OPEN_S, watchdog=watchdog)
    add(well, case)
    with pytest.raises(LinkFailed) as failed:
        link.send(ServiceBusMessage("42"), patience_s(case.sending))
    link.discard()
    assert seen(failed.value.failure) == case.sending


@each_case
async def test_an_asyncio_send_fails_in_the_same_way(well: LocalNamespace, case: Case) -> None:
    client = Namespace.from_connection_string(well.connection_string).aio_client()
    link = await AioSenderLink.open(client, "orders", deadline_s=OPEN_S)
    add(well, case)
    with pytest.raises(LinkFailed) as failed:
        await link.send(ServiceBusMessage("42"), patience_s(case.sending))
    link.discard()
    assert seen(failed.value.failure) == case.sending
    await all_closed()


@each_case
def test_a_link_is_opened_or_fails_as_it_should(well: LocalNamespace, watchdog: Watchdog, case: Case) -> None:
    client = Namespace.from_connection_string(well.connection_string).sync_client()
    add(well, case)
    if case.opening is None:
        SenderLink.open(client, "orders", deadline_s=OPEN_S, watchdog=watchdog).discard()
        return
    with pytest.raises(LinkFailed) as failed:
        SenderLink.open(client, "orders", deadline_s=patience_s(case.opening), watchdog=watchdog)
    assert seen(failed.value.failure) == case.opening


@each_case
async def test_an_asyncio_link_is_opened_or_fails_in_the_same_way(well: LocalNamespace, case: Case) -> None:
    client = Namespace.from_connection_string(well.connection_string).aio_client()
    add(well, case)
    if case.opening is None:
        (await AioSenderLink.open(client, "orders", deadline_s=OPEN_S)).discard()
    else:
        with pytest.raises(LinkFailed) as failed:
            await AioSenderLink.open(client, "orders", deadline_s=patience_s(case.opening))
        assert seen(failed.value.failure) == case.opening
    await all_closed()


# --- what is wrong with who asks, or with what he asks for ---


class Wrong(NamedTuple):
    expected: Seen
    queue: str = "orders"
    rule: str = "RootManageSharedAccessKey"
    key: str | None = None


WRONG = {
    "missing queue": Wrong(Seen(FailureKind.NOT_FOUND, "amqp:not-found"), queue="missing"),
    "disabled queue": Wrong(Seen(FailureKind.DISABLED, "com.microsoft:entity-disabled"), queue="disabled"),
    "missing right": Wrong(Seen(FailureKind.UNAUTHORISED, "amqp:unauthorized-access"), rule="reader"),
    "wrong key": Wrong(Seen(FailureKind.UNAUTHORISED, "amqp:client-error", is_connection=True), key="another"),
}


def wrong_namespace(local: LocalNamespace, wrong: Wrong, *, tls: bool) -> Namespace:
    text = local.connection_string_for(wrong.rule)
    if wrong.key is not None:
        key = text.partition("SharedAccessKey=")[2].partition(";")[0]
        text = text.replace(key, wrong.key)
    if tls:
        text = text.replace("UseDevelopmentEmulator=true;", "")
    return Namespace.from_connection_string(text)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_link_that_cannot_be_opened_fails_with_the_reason(
    local: LocalNamespace, watchdog: Watchdog, wrong: Wrong, tls: bool
) -> None:
    namespace = wrong_namespace(local, wrong, tls=tls)
    with pytest.raises(LinkFailed) as failed:
        SenderLink.open(namespace.sync_client(), wrong.queue, deadline_s=OPEN_S, watchdog=watchdog)
    assert seen(failed.value.failure) == wrong.expected


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_a_link_that_cannot_be_opened_fails_with_the_reason_with_asyncio(
    local: LocalNamespace, wrong: Wrong, tls: bool
) -> None:
    namespace = await asyncio.to_thread(wrong_namespace, local, wrong, tls=tls)
    with pytest.raises(LinkFailed) as failed:
        await AioSenderLink.open(namespace.aio_client(), wrong.queue, deadline_s=OPEN_S)
    assert seen(failed.value.failure) == wrong.expected
    await all_closed()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (ServiceBusMessage("x" * 300_000), FailureKind.TOO_LARGE),
        ([ServiceBusMessage("x" * 200_000)] * 2, FailureKind.TOO_LARGE),
        (42, FailureKind.REJECTED),
        (ServiceBusMessage("42", application_properties={"n": 2**40}), FailureKind.REJECTED),
    ],
    ids=["300 KB", "a list that fits in no batch", "no message", "a number that cannot be encoded"],
)
def test_what_cannot_be_sent_is_refused_without_a_doubt(
    local: LocalNamespace, watchdog: Watchdog, message: Any, kind: FailureKind
) -> None:
    client = Namespace.from_connection_string(local.connection_string).sync_client()
    link = SenderLink.open(client, "orders", deadline_s=OPEN_S, watchdog=watchdog)
    with pytest.raises(LinkFailed) as failed:
        link.send(message, OPEN_S)
    assert (failed.value.failure.kind, failed.value.failure.in_doubt) == (kind, False)
    link.discard()


def test_a_link_survives_what_the_sdk_survives(well: LocalNamespace, watchdog: Watchdog) -> None:
    client = Namespace.from_connection_string(well.connection_string).sync_client()
    link = SenderLink.open(client, "orders", deadline_s=OPEN_S, watchdog=watchdog)
    well.faults.add("refuse", condition="com.microsoft:server-busy", on="sends", count=1, **ORDERS)
    with pytest.raises(LinkFailed):
        link.send(ServiceBusMessage("42"), OPEN_S)
    assert link.is_usable
    link.send(ServiceBusMessage("42"), OPEN_S)
    well.faults.add("refuse", condition="amqp:internal-error", on="sends", count=1, **ORDERS)
    with pytest.raises(LinkFailed):
        link.send(ServiceBusMessage("42"), OPEN_S)
    assert not link.is_usable
    link.discard()
