"""What comes on a link is handed over in the order in which it came, however much of it is read at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.connection import Connection, Role
from twinbus.amqp.events import AttachRequested, Event, TransferArrived
from twinbus.amqp.sasl import ServerSasl
from twinbus.amqp.sending_link import SendingLink
from twinbus.pairing.sending.failure import Failure
from twinbus.transport.connection import NamespaceConnection
from twinbus.transport.dial import CbsToken, Dial
from twinbus.transport.links.link_handler import LinkHandler

NOW_MS = 1_700_000_000_000


class Listener(LinkHandler):
    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def on_transfers(self, transfers: list[TransferArrived]) -> None:
        self.heard.append(f"{len(transfers)} messages")

    def on_drained(self) -> None:
        self.heard.append("drained")

    def on_detached(self, failure: Failure) -> None:
        self.heard.append("detached")


def no_token(_audience: str) -> CbsToken:
    raise AssertionError("nobody asks for a token")


class OpenLink:
    """A connection of ours with one link, and the peer's end of it."""

    def __init__(self) -> None:
        dial = Dial("localhost", 5672, None, None, no_token)
        self.connection = NamespaceConnection(dial, attempt_s=1.0, clock=lambda: NOW_MS)
        self._peer = Connection(role=Role.SERVER, container_id="peer", sasl=ServerSasl())
        self.listener = Listener()
        engine = self.connection._connection
        engine.open()
        ours = engine.begin().attach_receiver("link", "orders", snd_settle_mode=0, rcv_settle_mode=1)
        ours.context = self.listener
        heard = self.exchange()
        (link,) = [event.link for event in heard if isinstance(event, AttachRequested)]
        assert isinstance(link, SendingLink)
        self.link = link
        link.accept()
        ours.grant(10)
        ours.drain()
        self.exchange()

    def exchange(self) -> list[Event]:
        """Let both ends talk until nobody has anything to say; what the peer heard."""
        heard: list[Event] = []
        while data := self.connection._connection.take_output():
            heard += self._peer.receive(data, NOW_MS)
            self.read()
        return heard

    def read(self) -> None:
        """All that the peer has written is read at once."""
        self.connection._stream.data_received(self._peer.take_output())


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda link: link.drained(), "drained"),
        (lambda link: link.detach(Error("amqp:link:detach-forced")), "detached"),
        (lambda link: link.session.end(), "detached"),
        (lambda link: link.session.connection.close(), "detached"),
    ],
    ids=["drained", "link detached", "session ended", "connection closed"],
)
def test_messages_come_before_the_end_that_was_sent_after_them(
    end: Callable[[SendingLink], None], expected: str
) -> None:
    opened = OpenLink()
    for tag in (b"1", b"2"):
        opened.link.send(b"message", tag=tag)
    end(opened.link)
    opened.read()
    assert opened.listener.heard == ["2 messages", expected]


def test_messages_that_answers_stand_between_are_handed_over_together() -> None:
    opened = OpenLink()
    first = opened.link.send(b"message", tag=b"1")
    opened.read()
    ours = opened.connection._connection.sessions[0].links[0]
    ours.settle(first, first, None, settled=False)  # type: ignore[attr-defined]
    opened.exchange()
    opened.link.send(b"message", tag=b"2")
    opened.link.settle(first, first, None)
    opened.link.send(b"message", tag=b"3")
    opened.read()
    assert opened.listener.heard == ["1 messages", "2 messages"]
