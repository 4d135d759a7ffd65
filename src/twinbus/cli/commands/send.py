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
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.bars import Bar
from twinbus.cli.json_form import json_text
from twinbus.cli.lengths import length_s, moment_to_come
from twinbus.cli.namespaces import (
    Config,
    Credential,
    Primary,
    PrimaryName,
    QueueCount,
    Secondary,
    Timeout,
    both,
    choose,
    one,
    seconds,
)
from twinbus.cli.outgoing import NUMBER, Form, Source, parse_properties
from twinbus.cli.say import say
from twinbus.cli.sending import Way, straight_to, through_pair
from twinbus.errors import OptionsError, SendError, TwinbusError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

    from twinbus.pairing.receipt import SendReceipt

LINES_SHOWN = 10
RATE_MAX = 1_000_000


def send(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A queue or a topic.")],
    body: Annotated[
        str | None,
        typer.Argument(metavar="[BODY]", help="The body; without it, each line of the standard input is one."),
    ] = None,
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The body is what is in this file; - is the standard input.")
    ] = None,
    lines: Annotated[
        bool,
        typer.Option("--lines", help="Each line of the standard input, or of --file, is a body; empty ones are not."),
    ] = False,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=TEXT", help="An application property; NAME:=5 for numbers, true, false. Repeat."
        ),
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The message id.  [default: made]")
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="The session of the message.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="TEXT", help="The subject, which some call label.")] = None,
    content_type: Annotated[str | None, typer.Option(metavar="TYPE", help="As application/json.")] = None,
    correlation_id: Annotated[str | None, typer.Option(metavar="ID", help="What it is an answer to.")] = None,
    reply_to: Annotated[str | None, typer.Option(metavar="ENTITY", help="Where answers are expected.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TEXT", help="The address that it carries.")] = None,
    partition_key: Annotated[str | None, typer.Option(metavar="KEY", help="What it is partitioned by.")] = None,
    ttl: Annotated[str | None, typer.Option(metavar="TIME", help="How long messages live, e.g. 30s or 2h.")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Not to be seen before this time, 2031-03-09T14:05Z, or 10m from now."),
    ] = None,
    count: Annotated[
        int,
        typer.Option(
            "--repeat", metavar="N", help=f"Send each so often; {NUMBER} in body, id and session is the number."
        ),
    ] = 1,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="Messages a second, at most.  [default: as fast as it goes]")
    ] = None,
    straight: Annotated[
        bool, typer.Option("--straight", help="To the primary only, also if a secondary is known.")
    ] = False,
    failover_interval: Annotated[
        str, typer.Option(metavar="TIME", help="How long failures are accepted before the backlog is used.")
    ] = "0s",
    queues: QueueCount = 10,
    no_create: Annotated[
        bool, typer.Option("--no-create", help="Use the backlog queues that exist, and create none: needs no Manage.")
    ] = False,
    primary_name: PrimaryName = None,
    ledger: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The ledger in which every send is recorded, if paired.")
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
    attempt_s = seconds("--timeout", timeout)
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise OptionsError(f"--rate must be above 0 and at most {RATE_MAX}, got {rate:g}")
    fields = {
        "subject": subject,
        "content_type": content_type,
        "correlation_id": correlation_id,
        "reply_to": reply_to,
        "to": to,
        "partition_key": partition_key,
    }
    form = Form(
        message_id=message_id,
        session=session,
        ttl_s=None if ttl is None else length_s("--ttl", ttl),
        schedule=None if schedule is None else moment_to_come("--schedule", schedule, datetime.now(UTC)),
        properties=parse_properties(property_ or ()),
        fields={name: value for name, value in fields.items() if value is not None},
        is_numbered=count > 1,
    )
    form.filled(b"", 1)  # what is wrong with it is said before anybody is asked
    is_paired = not straight and choose("secondary", secondary, config, credential) is not None
    if is_paired:
        way = _paired_way(
            entity,
            *both(primary, secondary, config, credential),
            failover_interval=timedelta(seconds=length_s("--failover-interval", failover_interval)),
            backlog_queue_count=queues,
            create_backlog=not no_create,
            attempt_timeout=timedelta(seconds=attempt_s),
            primary_name=primary_name,
            ledger=ledger,
        )
    else:
        way = straight_to(one("primary", primary, config, credential), _checked_entity(entity), attempt_s)
    source = Source(body, file, lines, count)
    logging.getLogger("twinbus").addHandler(logging.NullHandler())  # what happens is in the receipts
    _send_all(way, source, form, rate, Report(as_json))


def _paired_way(entity: str, primary: Any, secondary: Any, **wishes: Any) -> AbstractContextManager[Way]:
    from twinbus.client.options import SendAvailabilityPairedNamespaceOptions

    try:
        options = SendAvailabilityPairedNamespaceOptions(secondary, **wishes)
    except OptionsError as error:
        text = str(error).replace("backlog_queue_count", "--queues").replace("failover_interval", "--failover-interval")
        raise OptionsError(text) from None
    return through_pair(primary, options, _checked_entity(entity))


def _checked_entity(entity: str) -> str:
    from twinbus.client.any_client import checked_path

    return checked_path(entity)


# --- sending ---


def _send_all(way: AbstractContextManager[Way], source: Source, form: Form, rate: float | None, report: Report) -> None:
    ending = "failed"
    try:
        with Bar("sending", source.total, hidden=report.as_json and sys.stdout.isatty()) as bar, way as sender:
            for message in _paced(source, form, rate):
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


def _paced(source: Source, form: Form, rate: float | None) -> Iterator[ServiceBusMessage]:
    began = monotonic()
    for number, body in enumerate(source.bodies(), 1):
        if rate is not None:
            time.sleep(max(0.0, began + (number - 1) / rate - monotonic()))
        yield form.filled(body, number)


# --- telling ---


@dataclass(slots=True)
class Report:
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
            say(json_text({"event": "sent"} | receipt_document(receipt)))
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
            facts = {"ending": ending, "stored": self.stored, "places": dict(self.places)}
            say(json_text({"event": "finished"} | facts | {"copies_in_doubt": self.doubts, "seconds": took_s}))
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
    """The receipt of one message, for programs."""
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
