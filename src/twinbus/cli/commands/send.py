"""`twinbus send`: messages from a command line, with a receipt for each."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from twinbus.cli.arguments.common_options import Timeout, timeout_s
from twinbus.cli.arguments.option_groups import (
    ArgumentGroup,
    LedgerShipTo,
    PairArguments,
    PreparedBacklogArguments,
    check_ship_to,
    option,
)
from twinbus.cli.output import say, say_event
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.receiving import FIELDS
from twinbus.cli.sending import (
    NUMBER,
    BodySource,
    MessageTemplate,
    SendPath,
    parse_property,
    straight_to,
    through_pair,
)
from twinbus.errors import OptionsError, SendError, TwinbusError
from twinbus.units import parse_future_time, parse_seconds

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

    from twinbus.pairing.sending.receipt import SendReceipt

LINES_SHOWN = 10
RATE_MAX = 1_000_000


@dataclass(frozen=True, kw_only=True)
class BodyArguments(ArgumentGroup):
    panel: ClassVar[str] = "Bodies"
    file: Path | None = option(None, "FILE", "The body is what is in this file; - is the standard input.")
    lines: bool = option(
        False, None, "Each line of the standard input, or of --file, is a body; empty ones are not.", "--lines"
    )
    repeat: int = option(1, "N", f"Send each this often; {NUMBER} in body, id and session is the number.")
    rate: float | None = option(None, "N", "Messages a second, at most.  [default: as fast as it goes]")

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= RATE_MAX:
            raise OptionsError(f"--rate must be above 0 and at most {RATE_MAX}, got {self.rate:g}")


@dataclass(frozen=True, kw_only=True)
class MessageArguments(ArgumentGroup):
    panel: ClassVar[str] = "Message"
    property_: list[str] | None = option(
        None, "NAME=TEXT", "An application property; NAME:=5 for numbers, true, false. Repeat.", "--property"
    )
    message_id: str | None = option(None, "ID", "The message id.  [default: random]", "--id")
    session: str | None = option(None, "ID", "The session of the message.")
    subject: str | None = option(None, "TEXT", "The subject, also known as label.")
    content_type: str | None = option(None, "TYPE", "E.g. application/json.")
    correlation_id: str | None = option(None, "ID", "The message that it answers.")
    reply_to: str | None = option(None, "ENTITY", "Where answers are expected.")
    to: str | None = option(None, "ADDRESS", "The address that it carries.")
    partition_key: str | None = option(None, "KEY", "The partition key.")
    ttl: str | None = option(None, "TIME", "How long messages live, e.g. 30s or 2h.")
    schedule: str | None = option(
        None, "TIME", "Not received before this time, e.g. 2031-03-09T14:05Z, or 10m from now."
    )

    def template(self, *, is_numbered: bool) -> MessageTemplate:
        """Raises `OptionsError` if no message can be made of it."""
        fields = {name: getattr(self, name) for name in FIELDS}
        template = MessageTemplate(
            message_id=self.message_id,
            session=self.session,
            ttl_s=None if self.ttl is None else parse_seconds(self.ttl, "--ttl"),
            schedule=None
            if self.schedule is None
            else parse_future_time(self.schedule, datetime.now(UTC), "--schedule"),
            properties=dict(map(parse_property, self.property_ or ())),
            fields={name: value for name, value in fields.items() if value is not None},
            is_numbered=is_numbered,
        )
        template.filled(b"", 1)
        return template


@dataclass(frozen=True, kw_only=True)
class FailoverArguments(PreparedBacklogArguments):
    straight: bool = option(False, None, "To the primary only, also if a secondary is known.", "--straight")
    failover_interval: str = option("0s", "TIME", "How long failures are accepted before the backlog is used.")
    ledger: Path | None = option(None, "DIR", "The ledger in which every send is recorded, if paired.")
    ledger_ship_to: LedgerShipTo = None

    def __post_init__(self) -> None:
        """The pairing checks the number of queues: it does not matter for a send straight to the primary."""
        check_ship_to(self.ledger, self.ledger_ship_to)


def send(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A queue or a topic.")],
    bodies: BodyArguments,
    message: MessageArguments,
    namespaces: PairArguments,
    failover: FailoverArguments,
    body: Annotated[
        str | None,
        typer.Argument(metavar="[BODY]", help="The body; without it, each line of the standard input is one."),
    ] = None,
    timeout: Timeout = "5s",
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON lines: a receipt for each message, and how it ended.")
    ] = False,
) -> None:
    """Send messages to a queue or topic, and say where each of them is.

    With a secondary they are sent through the pair: while the entity is down on the primary, they go to the backlog.
    Without one they go to the primary, with one attempt each. It ends with 1 at the first message that nobody took.

    \b
    Examples:
      twinbus send orders '{"order": 42}' --content-type application/json
      twinbus send orders --file order.json --property weight:=2.5
      grep ERROR app.log | twinbus send errors --ttl 1h
      twinbus send orders 'order {n}' --repeat 1000 --rate 50 --json
      twinbus send carts 'later' --session cart-7 --schedule 10m
      twinbus send orders 42 --primary @primary.txt --secondary @secondary.txt
    """
    attempt_s = timeout_s(timeout)
    template = message.template(is_numbered=bodies.repeat > 1)
    way = _path_to(entity, namespaces, failover, attempt_s)
    source = BodySource(body, bodies.file, bodies.lines, bodies.repeat)
    for name in ("client", "pairing"):
        logging.getLogger(f"twinbus.{name}").addHandler(logging.NullHandler())  # what happens is in the receipts
    _send_all(way, source, template, bodies.rate, SendReport(as_json))


def _path_to(
    entity: str, namespaces: PairArguments, failover: FailoverArguments, attempt_s: float
) -> AbstractContextManager[SendPath]:
    """Through the pair if there is a secondary."""
    from twinbus.client.core.any_client import checked_path
    from twinbus.client.options import SendAvailabilityPairedNamespaceOptions

    if failover.straight or namespaces.choose("secondary") is None:
        return straight_to(namespaces.one("primary"), checked_path(entity), attempt_s)
    primary, secondary = namespaces.both()
    try:
        options = SendAvailabilityPairedNamespaceOptions(
            secondary,
            failover_interval=timedelta(seconds=parse_seconds(failover.failover_interval, "--failover-interval")),
            backlog_queue_count=failover.queues,
            create_backlog=not failover.no_create,
            attempt_timeout=timedelta(seconds=attempt_s),
            primary_name=failover.primary_name,
            ledger=failover.ledger,
            ledger_ship_to=failover.ledger_ship_to,
        )
    except OptionsError as error:
        text = str(error).replace("backlog_queue_count", "--queues").replace("failover_interval", "--failover-interval")
        raise OptionsError(text) from None
    return through_pair(primary, options, checked_path(entity))


# --- sending ---


def _send_all(
    way: AbstractContextManager[SendPath],
    source: BodySource,
    template: MessageTemplate,
    rate: float | None,
    report: SendReport,
) -> None:
    ending = "failed"
    try:
        with ProgressBar("sending", source.total, hidden=report.as_json and sys.stdout.isatty()) as bar, way as sender:
            for message in _messages_at_rate(source, template, rate):
                report.sent(sender.send(message))
                bar.done += 1
        ending = "done"
    except SendError as error:
        raise TwinbusError(report.failure_text(error)) from None
    except KeyboardInterrupt:
        ending = "interrupted"
        raise
    finally:
        report.finish(ending)


def _messages_at_rate(source: BodySource, template: MessageTemplate, rate: float | None) -> Iterator[ServiceBusMessage]:
    began = monotonic()
    for number, body in enumerate(source.bodies(), 1):
        if rate is not None:
            time.sleep(max(0.0, began + (number - 1) / rate - monotonic()))
        yield template.filled(body, number)


# --- telling ---


@dataclass(slots=True)
class SendReport:
    """What became of the messages."""

    as_json: bool
    places: Counter[str] = field(default_factory=Counter)
    doubts: int = 0
    began: float = field(default_factory=monotonic)
    _held: list[str] = field(default_factory=list)

    @property
    def stored(self) -> int:
        return self.places.total()

    def sent(self, receipt: SendReceipt) -> None:
        self.places[receipt.places[0]] += 1
        self.doubts += receipt.copies_in_doubt
        if self.as_json:
            say_event("sent", receipt_document(receipt))
        elif self.stored <= LINES_SHOWN:
            self._held.append(receipt_line(receipt))

    def failure_text(self, error: SendError) -> str:
        """In one line: which one failed, why, and what was stored before."""
        doubt = "; it may be stored all the same" if error.in_doubt and "in doubt" not in str(error) else ""
        stored = f"; {self.stored:,} before it are stored" if self.stored else ""
        return f"message {self.stored + 1} was not sent: {error}{doubt}{stored}"

    def finish(self, ending: str) -> None:
        took_s = monotonic() - self.began
        if self.as_json:
            places = {"places": dict(self.places), "copies_in_doubt": self.doubts}
            say_event("finished", {"ending": ending, "stored": self.stored, **places, "seconds": took_s})
        elif self.stored <= LINES_SHOWN:
            for line in self._held:
                say(line)
        else:
            say(self._summary(took_s))

    def _summary(self, took_s: float) -> str:
        at_home = self.places["primary"]
        parts = [f"{at_home:,} on the primary" if at_home else ""]
        parts.append(f"{self.stored - at_home:,} in the backlog" if self.stored > at_home else "")
        parts.append(f"{self.doubts:,} copies in doubt" if self.doubts else "")
        where = ", ".join(filter(None, parts))
        return f"{self.stored:,} messages are stored, {self.stored / max(took_s, 1e-3):,.0f}/s: {where}"


def receipt_document(receipt: SendReceipt) -> dict[str, Any]:
    return {
        "entity": receipt.entity,
        "message_id": receipt.message_ids[0],
        "side": receipt.side.value,
        "place": receipt.places[0],
        "attempts": receipt.attempts,
        "copies_in_doubt": receipt.copies_in_doubt,
        "seconds": receipt.seconds,
    }


def receipt_line(receipt: SendReceipt) -> str:
    doubt = f"  {receipt.copies_in_doubt} copies in doubt" if receipt.copies_in_doubt else ""
    tries = f"  {receipt.attempts} attempts" if receipt.attempts > 1 else ""
    return f"{receipt.message_ids[0]}  {receipt.places[0]}  {receipt.seconds * 1000:.0f} ms{tries}{doubt}"
