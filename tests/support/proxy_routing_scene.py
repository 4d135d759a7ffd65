"""Sends to one entity with a primary that a test plays: it opens links, answers, ends flows, and sets the time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import cast

from fake_link import FakeLink

from twinbus.amqp.events import TransferArrived
from twinbus.broker.links.backend import ReadTransfer
from twinbus.broker.message import Arrival
from twinbus.broker.operations import Done, Refused
from twinbus.client.native.send_window import SendWindow
from twinbus.client.reporting.ledger_events import ClientRecorder
from twinbus.pairing.entity import Entity
from twinbus.pairing.pair import Pair
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.failure import Failure
from twinbus.proxy.sending.routing import DONE, DirectSend, EntitySends, UnansweredSends

ATTEMPT_S = 5.0


class EntityScene:
    """Plays the ports of `EntitySends`."""

    def __init__(self, *, batch_bytes: int = 262_144, **rules: float) -> None:
        self.recorder: ClientRecorder | None = None
        self.pair = Pair(Rules(attempt_s=ATTEMPT_S, **rules))  # type: ignore[arg-type]
        self.entity = self.pair.entity("orders")
        self.now = 100.0
        self.load = UnansweredSends()
        self.sends = EntitySends(self.entity, self, self.load)
        self.opening: list[int] = []
        """The epochs of links that were asked for and have not come."""
        self.retired: list[SendWindow] = []
        self.flows: list[tuple[DirectSend, Failure | None]] = []
        """Those that run."""
        self.warnings: list[tuple[str, ...]] = []
        self.succeeded_epochs: list[int] = []
        self.flushes = 0
        self.replies: dict[str, list[Done | Refused]] = {}
        self.groups: list[list[str]] = []
        """Of transfers that were taken together: those that were answered together."""
        self.links: list[tuple[FakeLink, SendWindow]] = []
        self._batch_bytes = batch_bytes
        self._numbers = count()

    # --- ports ---

    def open_link(self, sends: EntitySends, epoch: int) -> None:
        self.opening.append(epoch)

    def retire_link(self, window: SendWindow) -> None:
        window.is_retired = True
        self.retired.append(window)

    def start_flow(self, send: DirectSend, failure: Failure | None, epoch: int) -> None:
        self.flows.append((send, failure))

    def flush_soon(self) -> None:
        self.flushes += 1

    def succeeded(self, entity: Entity, epoch: int) -> None:
        self.succeeded_epochs.append(epoch)

    def warn_early(self, entity: Entity, names: tuple[str, ...]) -> None:
        self.warnings.append(names)

    # --- what a test does ---

    def send(self, *payloads: bytes, is_ping: bool = False) -> str:
        """A transfer with these messages; its name."""
        name = f"{next(self._numbers)}"
        self.replies[name] = []
        arrivals = tuple([Arrival(each, f"{name}-{at}", None, None, None, is_ping) for at, each in enumerate(payloads)])
        self.sends.take(arrivals, self.now, self.replies[name].append)
        return name

    def send_each(self, *payloads: bytes) -> list[str]:
        """Transfers with one message each, taken together; their names."""
        transfers = []
        for payload in payloads:
            name = f"{next(self._numbers)}"
            self.replies[name] = []
            arrival = Arrival(payload, name, None, None, None)
            transfers.append(ReadTransfer(cast("TransferArrived", None), (arrival,)))
        self.sends.take_each(transfers, self.now, self._answered)
        return [transfer.arrivals[0].message_id or "" for transfer in transfers]

    def _answered(self, transfers: Sequence[ReadTransfer], reply: Done | Refused) -> None:
        names = [transfer.arrivals[0].message_id or "" for transfer in transfers]
        self.groups.append(names)
        for name in names:
            self.replies[name].append(reply)

    def open(self, credit: int = 1_000, message_bytes_max: int | None = None) -> FakeLink:
        """The link that was asked for opens."""
        epoch = self.opening.pop(0)
        link, window = self._new_link(credit, message_bytes_max)
        self.sends.opened(window, epoch, 262_144, self.now)
        return link

    def open_for_flow(self, credit: int = 1_000) -> FakeLink:
        """A flow has opened a link, which others may use too."""
        link, window = self._new_link(credit, None)
        self.sends.use_link(window, self.entity.epoch, 262_144)
        return link

    def _new_link(self, credit: int, message_bytes_max: int | None) -> tuple[FakeLink, SendWindow]:
        link = FakeLink(credit, message_bytes_max)
        link.properties["com.microsoft:max-message-batch-size"] = self._batch_bytes
        window = SendWindow("orders", link.as_link, ATTEMPT_S, self.now, lambda _at: None)
        self.links.append((link, window))
        return link, window

    def refuse(self, failure: Failure) -> None:
        """The link that was asked for does not open."""
        self.sends.not_opened(failure, self.opening.pop(0), self.now)

    @property
    def window(self) -> SendWindow:
        return self.links[-1][1]

    def end_flow(self, index: int = 0, reply: Done | Refused = DONE, accepted: int | None = None) -> None:
        send, _ = self.flows.pop(index)
        send.end(reply, len(send.arrivals) if accepted is None else accepted, self.now)

    @property
    def flow_names(self) -> list[str]:
        return [(send.arrivals[0].message_id or "").split("-")[0] for send, _ in self.flows]
