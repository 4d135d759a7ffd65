"""The syphon between two real namespaces, with the official client as a witness."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from itertools import count, takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage, ServiceBusSubQueue
from token_makers import secret_signer, web_token

from twinbus.amqp import sections
from twinbus.amqp.events import DispositionArrived
from twinbus.amqp.outcomes import ACCEPTED
from twinbus.amqp.sections import Header, PropertyField
from twinbus.client.namespace import Namespace
from twinbus.dial import Dial, Token
from twinbus.ledger import Kind, Ledger, LedgerReader
from twinbus.namespace.rights.jwt import JwtIssuer
from twinbus.pairing.envelope import address
from twinbus.syphon import Alert, Syphon, SyphonOptions, syphon, tokens
from twinbus.syphon.batches import encode_batch
from twinbus.syphon.line import Line
from twinbus.syphon.linked import Linked
from twinbus.syphon.quarantine import Quarantine, by_reason
from twinbus.syphon.reasons import EXPIRED, MALFORMED
from twinbus.syphon.survey import survey
from twinbus.testing import LocalNamespace, NamespacePair

WAIT_S = 60.0
ISSUER, SECRET = "https://issuer.test", "a secret that the issuer and the namespaces share"
QUICK: dict[str, Any] = {"backoff_s": (0.1, 0.5), "busy_s": 0.5, "attempt_s": 5.0}
"""Pauses that suit a test."""


@pytest.fixture
def pair(namespace_pair: NamespacePair) -> NamespacePair:
    """With two destinations and two backlog queues."""
    primary, secondary = namespace_pair
    for name in ("orders", "invoices"):
        primary.create_queue(name)
    for index in range(2):
        secondary.create_queue(backlog(index), max_delivery_count=2_147_483_647)
    return namespace_pair


def backlog(index: int) -> str:
    return f"contoso/x-servicebus-transfer/{index}"


def dial(namespace: LocalNamespace) -> Dial:
    return Namespace.from_connection_string(namespace.connection_string).dial()


def letter(path: str, message_id: str, body: bytes = b"body", **parts: Any) -> bytes:
    properties = {PropertyField.MESSAGE_ID: message_id}
    return address(sections.encode_message(properties=properties, data=body, **parts), path)


class Filling(Linked):
    def __init__(self) -> None:
        super().__init__()
        self.stored = asyncio.Event()

    def disposition(self, event: DispositionArrived) -> None:
        assert event.outcome == ACCEPTED
        self.stored.set()


async def fill(namespace: LocalNamespace, index: int, letters: list[bytes]) -> None:
    """Put letters into a backlog queue."""
    line = Line(dial(namespace), attempt_s=10.0, clock=lambda: int(time.monotonic() * 1000))
    await line.open()
    filling = Filling()
    link = await line.sender(backlog(index), filling)
    for start in range(0, len(letters), 100):
        filling.stored.clear()
        payload, message_format = encode_batch(letters[start : start + 100])
        link.send(payload, tag=start.to_bytes(4, "big"), message_format=message_format)
        line.flush()
        await asyncio.wait_for(filling.stored.wait(), WAIT_S)
    await line.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():
            await asyncio.sleep(0.01)


async def messages_at(
    namespace: LocalNamespace, queue: str, count: int, sub_queue: ServiceBusSubQueue | None = None
) -> list[ServiceBusReceivedMessage]:
    """Receive and remove what is there, with the official client."""

    def receive() -> list[ServiceBusReceivedMessage]:
        found: list[ServiceBusReceivedMessage] = []
        with (
            ServiceBusClient.from_connection_string(namespace.connection_string) as client,
            client.get_queue_receiver(queue, sub_queue=sub_queue, receive_mode="receiveanddelete") as receiver,
        ):
            while len(found) < count:
                more = receiver.receive_messages(count - len(found), max_wait_time=5)
                if not more:
                    break
                found += more
        return found

    return await asyncio.to_thread(receive)


def ids_of(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return sorted(str(message.message_id) for message in messages)


@asynccontextmanager
async def running(pair: NamespacePair, alerts: list[Alert] | None = None, **options: Any) -> AsyncIterator[Syphon]:
    chosen = SyphonOptions(**(QUICK | options))
    on_alert = None if alerts is None else alerts.append
    pump = Syphon(dial(pair.primary), dial(pair.secondary), "contoso", 2, chosen, on_alert=on_alert)
    async with pump:
        yield pump
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == [], "a stopped syphon leaves no task behind"


async def test_a_backlog_comes_home_and_the_syphon_ends(pair: NamespacePair) -> None:
    orders = [letter("orders", f"o{n}", application_properties={"n": n}) for n in range(300)]
    invoices = [letter("invoices", f"i{n}", b"x" * 5_000) for n in range(50)]
    await fill(pair.secondary, 0, [each for two in zip(orders[:50], invoices, strict=True) for each in two])
    await fill(pair.secondary, 1, orders[50:])
    looks: list[int] = []
    options = SyphonOptions(until_empty=True)
    result = await asyncio.wait_for(
        syphon(
            dial(pair.primary),
            dial(pair.secondary),
            "contoso",
            2,
            options,
            on_progress=lambda progress: looks.append(progress.moved),
        ),
        WAIT_S,
    )
    assert (result.moved, result.repeated, result.refused, result.held) == (350, 0, 0, 0)
    assert looks[-1] == 350
    found = await messages_at(pair.primary, "orders", 300)
    assert ids_of(found) == sorted(f"o{n}" for n in range(300))
    assert found[0].application_properties is not None
    assert set(found[0].application_properties) == {b"n"}
    assert len(await messages_at(pair.primary, "invoices", 50)) == 50
    assert await messages_at(pair.secondary, backlog(0), 1) == []


async def test_a_destination_that_is_down_holds_nobody_up_and_nothing_locked(pair: NamespacePair) -> None:
    pair.primary.faults.add("no-send", entities=["orders"])
    await fill(pair.secondary, 0, [letter("orders" if n % 2 else "invoices", f"m{n}") for n in range(100)])
    alerts: list[Alert] = []
    async with running(pair, alerts, backoff_s=(20.0, 20.0)) as pump:
        await until(lambda: pump.look().moved == 50 and pump.look().released == 50)
        assert [(alert.name, alert.subject) for alert in alerts] == [("destination_down", "orders")]
        assert "amqp:internal-error" in alerts[0].text or "internal" in alerts[0].text
        waiting = await messages_at(pair.secondary, backlog(0), 50)
    assert len(waiting) == 50
    assert {message.delivery_count for message in waiting} == {0}


async def test_what_was_passed_over_comes_home_when_its_destination_is_back(pair: NamespacePair) -> None:
    fault = pair.primary.faults.add("refuse", entities=["orders"], condition="com.microsoft:entity-disabled")
    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(100)])
    async with running(pair) as pump:
        await until(lambda: pump.look().released >= 100)
        pair.primary.faults.clear(fault)
        await until(lambda: pump.look().moved == 100)
    assert ids_of(await messages_at(pair.primary, "orders", 100)) == sorted(f"m{n}" for n in range(100))


async def test_why_a_destination_is_passed_over_is_in_the_ledger(pair: NamespacePair, tmp_path: Path) -> None:
    pair.primary.faults.add("refuse", entities=["orders"], condition="com.microsoft:server-busy", count=1, on="sends")
    await fill(pair.secondary, 0, [letter("nowhere", "m1"), letter("orders", "m2")])
    ends, options = (dial(pair.primary), dial(pair.secondary)), SyphonOptions(**QUICK)
    with Ledger.at(tmp_path / "ledger") as ledger:
        async with Syphon(*ends, "contoso", 2, options, ledger=ledger) as pump:
            await until(lambda: pump.look().released >= 2)
    records = list(LedgerReader(ledger.directory).records())
    told = {(record.kind, record.entity, record.condition) for record in records}
    assert (Kind.DESTINATION_SKIPPED, "nowhere", "amqp:not-found") in told
    assert (Kind.THROTTLED, "orders", "com.microsoft:server-busy") in told
    assert Kind.REJECTED not in {record.kind for record in records}
    assert {record.namespace for record in records if record.namespace} == {"contoso", "backup"}


async def test_a_queue_that_is_created_later_gets_its_messages(pair: NamespacePair) -> None:
    await fill(pair.secondary, 1, [letter("late", "m1"), letter("orders", "m2")])
    async with running(pair) as pump:
        await until(lambda: pump.look().moved == 1 and pump.look().released >= 1)
        assert "not found" in str(pump.look().destinations)
        pair.primary.create_queue("late")
        await until(lambda: pump.look().moved == 2)
    assert ids_of(await messages_at(pair.primary, "late", 1)) == ["m1"]


@pytest.mark.parametrize("how", ["refuse", "drop"])
async def test_a_primary_that_cannot_be_reached_is_waited_for(pair: NamespacePair, how: str) -> None:
    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(50)])
    pair.primary.faults.add("unreachable", how=how)
    alerts: list[Alert] = []
    async with running(pair, alerts) as pump:
        await until(lambda: pump.look().released >= 50)
        pair.primary.faults.clear()
        await until(lambda: pump.look().moved == 50)
    assert [alert.name for alert in alerts] == ["destination_down", "destination_up"]


async def test_a_silent_primary_is_given_up_in_time(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [letter("orders", "m1")])
    pair.primary.faults.add("unreachable", how="silent")
    async with running(pair, attempt_s=0.5) as pump:
        await until(lambda: pump.look().released >= 1)
        pair.primary.faults.clear()
        await until(lambda: pump.look().moved == 1)


async def test_a_batch_that_is_stored_but_not_answered_comes_again_with_the_same_ids(pair: NamespacePair) -> None:
    pair.primary.faults.add("unanswered", entities=["orders"], count=1)
    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(10)])
    async with running(pair, attempt_s=4.0) as pump:
        await until(lambda: pump.look().moved == 10)
        assert pump.look().in_doubt == 10
    found = ids_of(await messages_at(pair.primary, "orders", 20))
    assert found == sorted(f"m{n}" for n in range(10) for _ in range(2))


async def test_a_throttled_destination_is_left_alone_for_a_while(pair: NamespacePair) -> None:
    pair.primary.faults.add("refuse", entities=["orders"], condition="com.microsoft:server-busy", count=1, on="sends")
    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(10)])
    began = time.monotonic()
    async with running(pair, busy_s=2.0) as pump:
        await until(lambda: pump.look().released == 10)
        assert pump.look().moved == 0
        await until(lambda: pump.look().moved == 10)
    assert time.monotonic() - began >= 2.0


async def test_strangers_are_put_aside_listed_and_can_be_discarded(pair: NamespacePair) -> None:
    stranger = sections.encode_message(properties={PropertyField.MESSAGE_ID: "stranger"}, data=b"?")
    spy = letter("orders/$management", "spy")
    await fill(pair.secondary, 0, [stranger, letter("orders", "m1"), spy])
    async with running(pair) as pump:
        await until(lambda: pump.look().moved == 1 and pump.look().refused == 2)
    async with Quarantine(dial(pair.secondary), "contoso", 2) as quarantine:
        found = [each async for each in quarantine.list()]
        assert [(each.message_id, each.reason) for each in found] == [("stranger", MALFORMED), ("spy", MALFORMED)]
        assert "x-ms-path" in str(found[0].description)
        for each in found:
            assert await quarantine.show(*each.number) == each
        assert await quarantine.show(0, found[1].sequence + 1) is None
        assert await quarantine.show(7, 1) is None
        again = await quarantine.redrive(dial(pair.primary), lambda each: True)
        assert sorted(again.kept) == sorted(each.number for each in found)
        gone = await quarantine.discard(lambda each: each.message_id == "spy")
        assert gone.done == [found[1].number]
        assert [each.message_id async for each in quarantine.list()] == ["stranger"]


async def test_an_expired_message_can_be_sent_home_all_the_same(pair: NamespacePair) -> None:
    expired = letter("orders", "m1", header=Header(ttl_ms=1))
    await fill(pair.secondary, 0, [expired, letter("orders", "m2", header=Header(ttl_ms=3_600_000))])
    async with running(pair) as pump:
        await until(lambda: pump.look().expired == 1 and pump.look().moved == 1)
    (home,) = await messages_at(pair.primary, "orders", 1)
    assert home.time_to_live is not None
    assert home.time_to_live < timedelta(hours=1)
    async with Quarantine(dial(pair.secondary), "contoso", 2) as quarantine:
        pair.primary.faults.add("refuse", entities=["orders"], condition="amqp:not-allowed", count=1, on="sends")
        first = await quarantine.redrive(dial(pair.primary), by_reason(EXPIRED))
        assert len(first.kept) == 1
        second = await quarantine.redrive(dial(pair.primary), by_reason(EXPIRED))
        assert (len(second.done), second.kept) == (1, {})


async def test_an_entity_that_keeps_a_redrive_waiting_does_so_once(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [letter("orders", f"m{n}", header=Header(ttl_ms=1)) for n in range(5)])
    async with running(pair) as pump:
        await until(lambda: pump.look().expired == 5)
    pair.primary.faults.add("unanswered", entities=["orders"])
    began = time.monotonic()
    async with Quarantine(dial(pair.secondary), "contoso", 2, attempt_s=2.0) as quarantine:
        tried = await quarantine.redrive(dial(pair.primary), by_reason(EXPIRED))
    assert time.monotonic() - began < 9.5
    first, *others = tried.kept.values()
    assert "orders did not answer in time" in first
    assert len(others) == 4
    assert all("was not asked again" in each for each in others)


async def test_an_empty_receive_is_not_an_empty_queue(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [letter("orders", "m1")])
    with ServiceBusClient.from_connection_string(pair.secondary.connection_string) as client:
        receiver = client.get_queue_receiver(backlog(0))
        (held,) = await asyncio.to_thread(receiver.receive_messages, 1, 5)
        options = SyphonOptions(until_empty=True, **QUICK)
        work = asyncio.create_task(syphon(dial(pair.primary), dial(pair.secondary), "contoso", 2, options))
        done, _ = await asyncio.wait({work}, timeout=2.5)
        assert not done, "somebody else has a message under lock"
        await asyncio.to_thread(receiver.abandon_message, held)
        assert (await asyncio.wait_for(work, WAIT_S)).moved == 1
        await asyncio.to_thread(receiver.close)


async def test_two_syphons_share_one_backlog(pair: NamespacePair) -> None:
    other = Syphon(dial(pair.primary), dial(pair.secondary), "contoso", 2, SyphonOptions(prefetch=100))
    async with running(pair, prefetch=100) as one, asyncio.timeout(WAIT_S):
        filled = 0
        async with other:
            while not (one.look().moved and other.look().moved):
                await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(filled, filled + 500)])
                filled += 500
            await until(lambda: one.look().moved + other.look().moved == filled)
    found = await messages_at(pair.primary, "orders", filled)
    assert ids_of(found) == sorted(f"m{n}" for n in range(filled))


async def test_a_secondary_that_restarts_is_taken_up_again(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(400)])
    alerts: list[Alert] = []
    async with running(pair, alerts, rate=80.0) as pump:
        await until(lambda: pump.look().moved > 5)
        await asyncio.to_thread(pair.secondary.restart)
        assert pump.look().moved < 400
        await until(lambda: pump.look().held == 0 and not pump.look().troubles and pump.pump.tally.stored >= 400)
    found = set(ids_of(await messages_at(pair.primary, "orders", pump.pump.tally.stored)))
    assert found == {f"m{n}" for n in range(400)}
    assert {"queue_down", "queue_up"} <= {alert.name for alert in alerts}


async def test_a_primary_that_restarts_in_the_middle_loses_nothing(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(500)])
    async with running(pair, rate=1_000.0) as pump:
        await until(lambda: pump.look().moved > 50)
        await asyncio.to_thread(pair.primary.restart)
        await until(lambda: pump.look().moved == 500)
    found = ids_of(await messages_at(pair.primary, "orders", 500 + pump.look().in_doubt))
    assert set(found) == {f"m{n}" for n in range(500)}
    assert len(found) - 500 <= pump.look().in_doubt


@pytest.mark.long
async def test_locks_are_renewed_while_a_destination_is_slow(namespace_pair: NamespacePair) -> None:
    primary, secondary = namespace_pair
    primary.create_queue("orders")
    for index in range(2):
        secondary.create_queue(backlog(index), lock_ms=7_000)
    await fill(secondary, 0, [letter("orders", f"m{n}") for n in range(700)])
    primary.faults.add("slow", entities=["orders"], delay=timedelta(seconds=8))
    async with running(namespace_pair, lock_s=7.0, attempt_s=30.0) as pump:
        await until(lambda: pump.look().moved == 700)
        assert pump.look().repeated == 0
        assert pump.pump.tally.locks_renewed >= 700
    primary.faults.clear()
    assert len(await messages_at(primary, "orders", 700)) == 700


async def test_pause_and_resume(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(300)])
    async with running(pair, canary=100) as pump:
        await until(lambda: pump.look().state == "paused after the canary")
        await until(lambda: pump.look().held == 0)
        assert pump.look().moved == 100
        pump.resume()
        await until(lambda: pump.look().moved == 300)
        pump.pause()
        assert pump.look().state == "paused"
        await fill(pair.secondary, 1, [letter("orders", "later")])
        pump.resume()
        await until(lambda: pump.look().moved == 301)


async def test_a_survey_tells_what_would_move_where_and_takes_nothing(pair: NamespacePair) -> None:
    stranger = sections.encode_message(properties={PropertyField.MESSAGE_ID: "stranger"}, data=b"?")
    await fill(pair.secondary, 0, [letter("orders", f"m{n}", b"x" * 100) for n in range(300)])
    await fill(pair.secondary, 1, [letter("invoices", "i"), letter("orders", "old", header=Header(ttl_ms=1)), stranger])
    options = SyphonOptions(entities=frozenset({"orders"}))
    for _ in range(2):
        found = await survey(dial(pair.secondary), "contoso", 2, options)
        assert {path: share.messages for path, share in found.destinations.items()} == {"orders": 300}
        assert found.destinations["orders"].size > 30_000
        assert (found.unwanted.messages, found.malformed.messages, found.expired.messages) == (1, 1, 1)


async def test_about_how_many_are_left_is_counted_with_few_peeks(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(700)])
    await fill(pair.secondary, 1, [letter("orders", f"n{n}") for n in range(3)])
    async with running(pair, canary=1) as pump:
        await until(lambda: pump.look().state == "paused after the canary" and pump.look().held == 0)
        assert await pump.count() in (702, 703)
        pump.resume()
        await until(lambda: pump.look().moved == 703)
        assert pump.look().left in (0, 1)


async def test_what_is_left_is_counted_again_while_it_works_for_long(
    pair: NamespacePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("twinbus.syphon.syphon")
    monkeypatch.setattr(module, "_COUNT_AFTER_MS", 100)
    async with running(pair, rate=100) as pump:
        async with asyncio.timeout(WAIT_S):
            while await pump.count() is None:
                await asyncio.sleep(0.01)
        assert pump.look().left == 0
        await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(400)])
        await until(lambda: pump.look().moved > 0)
        assert pump.look().left is None, "others have come since it was counted"
        monkeypatch.setattr(module, "_COUNT_EVERY_MS", 100)
        await until(lambda: (pump.look().left or 0) > 100)
        assert (pump.look().seconds_left or 0) > 1


async def test_over_tls(pair: NamespacePair) -> None:
    def tls_dial(namespace: LocalNamespace) -> Dial:
        text = namespace.connection_string.replace("UseDevelopmentEmulator=true", "").replace(";;", ";")
        return Namespace.from_connection_string(text).dial()

    await fill(pair.secondary, 0, [letter("orders", f"m{n}") for n in range(100)])
    dials = tls_dial(pair.primary), tls_dial(pair.secondary)
    assert dials[0].tls is not None
    result = await asyncio.wait_for(syphon(*dials, "contoso", 2, SyphonOptions(until_empty=True)), WAIT_S)
    assert result.moved == 100


class WebTokens:
    """A token credential as those of azure-identity, of an issuer that the namespaces believe."""

    def get_token(self, *_scopes: str, **_: Any) -> AccessToken:
        until = int(time.time()) + 600
        roles = ["Azure Service Bus Data Owner"]
        claims = {"iss": ISSUER, "aud": "https://servicebus.azure.net", "exp": until, "roles": roles}
        return AccessToken(web_token({"alg": "HS256", "typ": "JWT"}, claims, secret_signer(SECRET)), until)


async def test_with_web_tokens_instead_of_keys() -> None:
    issuers = [JwtIssuer(ISSUER, "HS256", SECRET)]
    with (
        LocalNamespace("contoso", queues=["orders"], jwt_issuers=issuers) as primary,
        LocalNamespace("backup", queues=[backlog(0)], jwt_issuers=issuers) as secondary,
    ):
        await fill(secondary, 0, [letter("orders", f"m{n}") for n in range(20)])
        dials = [
            Namespace(f"localhost:{each.port}", WebTokens(), name=each.name, connection_verify=str(each.ca_file)).dial()
            for each in (primary, secondary)
        ]
        options = SyphonOptions(until_empty=True, **QUICK)
        result = await asyncio.wait_for(syphon(dials[0], dials[1], "contoso", 1, options), WAIT_S)
        assert result.moved == 20


async def test_tokens_are_renewed_before_they_end(pair: NamespacePair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Well before: a busy machine may take seconds for it."""
    monkeypatch.setattr(tokens, "_USED_PART", 0.25)
    given: list[str] = []
    life_s = 6

    def short_lived(one: Dial) -> Dial:
        def get_token(audience: str) -> Token:
            given.append(audience)
            token = one.get_token(audience)
            fields = dict(part.split("=", 1) for part in token.text.partition(" ")[2].split("&"))
            ends = str(int(time.time()) + life_s)
            secret = secrets[one.port]
            signed = f"{fields['sr']}\n{ends}".encode()
            signature = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest())
            text = f"SharedAccessSignature sr={fields['sr']}&sig={quote_plus(signature)}&se={ends}&skn={fields['skn']}"
            return Token(text, token.type, float(ends))

        return replace(one, get_token=get_token)

    secrets = {
        namespace.port: dict(part.split("=", 1) for part in namespace.connection_string.split(";"))["SharedAccessKey"]
        for namespace in pair
    }
    chosen = SyphonOptions(**QUICK)
    alerts: list[Alert] = []
    pump = Syphon(
        short_lived(dial(pair.primary)), short_lived(dial(pair.secondary)), "contoso", 2, chosen, on_alert=alerts.append
    )
    async with pump:
        began = time.monotonic()
        for round_ in takewhile(lambda _: time.monotonic() < began + life_s, count()):
            await fill(pair.secondary, 0, [letter("orders", f"m{round_}")])
            await until(lambda wanted=round_ + 1: pump.look().moved == wanted)  # type: ignore[misc]
            before = len(given)
            await until(lambda least=before + 3: len(given) >= least)  # type: ignore[misc]
    assert alerts == []


async def test_a_key_without_the_right_is_told_and_costs_nothing(tmp_path: Path) -> None:
    with (
        LocalNamespace("contoso", queues=["orders"], rules=["reader:Listen"]) as primary,
        LocalNamespace("backup", queues=[backlog(0)], data=tmp_path) as secondary,
    ):
        await fill(secondary, 0, [letter("orders", "m1")])
        reader = Namespace.from_connection_string(primary.connection_string_for("reader")).dial()
        alerts: list[Alert] = []
        options = SyphonOptions(**QUICK)
        async with Syphon(reader, dial(secondary), "contoso", 1, options, on_alert=alerts.append) as pump:
            await until(lambda: pump.look().released >= 1)
        assert alerts[0].name == "destination_down"
        assert "unauthorised" in alerts[0].text
        assert ids_of(await messages_at(secondary, backlog(0), 1)) == ["m1"]


async def test_a_backlog_queue_that_is_missing_is_told_while_the_others_work(pair: NamespacePair) -> None:
    await fill(pair.secondary, 0, [letter("orders", "m1")])
    alerts: list[Alert] = []
    options = SyphonOptions(**QUICK)
    async with Syphon(dial(pair.primary), dial(pair.secondary), "contoso", 3, options, on_alert=alerts.append) as pump:
        await until(lambda: pump.look().moved == 1 and bool(pump.look().troubles))
        assert [(alert.name, alert.subject) for alert in alerts] == [("queue_down", backlog(2))]
        pair.secondary.create_queue(backlog(2))
        await until(lambda: not pump.look().troubles)
