"""Authentication, then the right, then faults and throttles: who may not do a thing does not learn what would fail."""

from __future__ import annotations

import base64
import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from engine_client import EngineClient

from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.codec.types import Int, Long
from twinbus.amqp.sending_link import SendingLink
from twinbus.ledger import Kind, LedgerReader
from twinbus.testing import LocalNamespace

RULES = ["sender:Send:send-key", "reader:Listen:listen-key"]
KEYS = {"sender": "send-key", "reader": "listen-key", "anonymous": ""}
ENDLESS = timedelta(minutes=2)
FAULTS: dict[str, dict[str, Any]] = {
    "no-send": {},
    "no-receive": {},
    "no-manage": {},
    "refuse": {"condition": "amqp:not-found"},
    "busy": {"per_second": 0},
    "slow": {"delay": ENDLESS},
    "unanswered": {},
    "late": {"delay": ENDLESS},
}


THROTTLES = {"busy_operations_per_second": 0.001, "busy_unwritten_bytes": 1}


class Try(NamedTuple):
    """Something that a peer tries without the right to it."""

    peers: tuple[str, ...]
    answer: Callable[[EngineClient, int, str], object]


def refusal(link: object) -> str:
    assert isinstance(link, Error), "it was let in"
    return f"{link.condition} {link.description}"


def request(operation: str, body: object) -> Callable[[EngineClient, int, str], object]:
    def ask(client: EngineClient, _port: int, _peer: str) -> object:
        asking = client.sender("orders/$management")
        if not isinstance(asking, SendingLink):
            return refusal(asking)
        return sorted(client.ask("orders/$management", {"operation": f"com.microsoft:{operation}"}, body).items())

    return ask


def fetch(path: str, method: str = "GET") -> Callable[[EngineClient, int, str], object]:
    def ask(_client: EngineClient, port: int, peer: str) -> object:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        basic = base64.b64encode(f"{peer}:{KEYS[peer]}".encode()).decode()
        connection.request(method, path, headers={"Authorization": f"Basic {basic}"})
        answer = connection.getresponse()
        said = answer.status, answer.read()
        connection.close()
        return said

    return ask


TRIES = {
    "send": Try(("reader", "anonymous"), lambda client, *_: refusal(client.sender("orders"))),
    "receive": Try(("sender", "anonymous"), lambda client, *_: refusal(client.receiver("orders"))),
    "receive dead letters": Try(
        ("sender", "anonymous"), lambda client, *_: refusal(client.receiver("orders/$deadletterqueue"))
    ),
    "send to nothing": Try(("reader", "anonymous"), lambda client, *_: refusal(client.sender("nothing"))),
    "peek": Try(
        ("sender", "anonymous"), request("peek-message", {"from-sequence-number": Long(1), "message-count": Int(1)})
    ),
    "schedule": Try(("reader", "anonymous"), request("schedule-message", {"messages": []})),
    "list rules": Try(("sender", "reader", "anonymous"), request("enumerate-rules", {"skip": Int(0), "top": Int(1)})),
    "wrong token": Try(
        ("anonymous",),
        lambda client, *_: sorted(client.ask("$cbs", {"operation": "put-token", "name": "orders"}, "x").items()),
    ),
    "show a queue": Try(("sender", "reader", "anonymous"), fetch("/orders?api-version=2021-05")),
    "delete a queue": Try(("sender", "reader", "anonymous"), fetch("/orders?api-version=2021-05", "DELETE")),
    "list queues": Try(("sender", "reader", "anonymous"), fetch("/$Resources/queues?api-version=2021-05")),
    "metrics": Try(("sender", "reader", "anonymous"), fetch("/metrics")),
}


def answers(served: LocalNamespace) -> Iterator[tuple[str, object]]:
    """What everybody hears who tries something without the right to it."""
    for peer, key in KEYS.items():
        with EngineClient(served.port, None if peer == "anonymous" else peer, key) as client:
            for name, each in TRIES.items():
                if peer in each.peers:
                    yield f"{name} as {peer}", each.answer(client, served.port, peer)


def test_who_has_not_the_right_gets_the_same_answer_whatever_is_wrong(tmp_path: Path) -> None:
    with LocalNamespace(queues=["orders"], rules=RULES, ledger=tmp_path) as served:
        usual = dict(answers(served))
        assert len(usual) == sum(len(each.peers) for each in TRIES.values())
        for fault, parameters in FAULTS.items():
            served.faults.add(fault, **parameters)
            assert dict(answers(served)) == usual, fault
            served.faults.clear()
    with LocalNamespace(queues=["orders"], rules=RULES, limits=THROTTLES) as served:
        with EngineClient(served.port, "sender", KEYS["sender"]) as client:
            link = client.sender("orders")
            assert isinstance(link, SendingLink)
            assert "server-busy" in str([client.send(link, b"\x00\x53\x75\xa0\x01x") for _ in range(2)])
        assert dict(answers(served)) == usual, "throttled"
    recorded = {record.kind for record in LedgerReader(tmp_path).records()}
    assert recorded <= {Kind.OPENED, Kind.CLOSED}, "nobody who may do nothing is in the ledger"


NONSENSE = (
    b"\x16\x03\x01\x00\x05hello",
    b"GET /\x1b[31m HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /orders HTTP/9.9\r\n\xff\xfe: \x00\r\n\r\n",
    b"PUT /orders HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"AMQP\x03\x01\x00\x00\x00\x00\x00\x09\x02\x01\x00\x00\xff",
    b"AMQP\x00\x01\x00\x00\x00\x00\x00\x09\x02\x00\x00\x00\xff",
)


def test_an_unauthenticated_peer_writes_neither_into_the_log_nor_into_the_ledger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalNamespace(queues=["orders"], ledger=tmp_path) as served:
        for nonsense in NONSENSE:
            with socket.create_connection(("127.0.0.1", served.port), timeout=30) as peer:
                peer.sendall(nonsense)
                peer.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    while peer.recv(4096):
                        pass
    assert caplog.messages == []
    assert {record.kind for record in LedgerReader(tmp_path).records()} <= {Kind.OPENED, Kind.CLOSED}
