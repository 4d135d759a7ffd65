"""`twinbus receive`: look at messages, or take them."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli import incoming
from twinbus.cli.bars import Bar
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.json_form import json_text
from twinbus.cli.lengths import length_s
from twinbus.cli.namespaces import Config, Credential, Primary, Timeout, one, seconds
from twinbus.cli.receiving import Reception, Where, receiving_from
from twinbus.cli.say import note
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import shown

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

AT_ONCE = 50
SLICE_S = 0.5
"""So often somebody looks whether it is to end."""
MAX = 10_000_000
FEWER = "done, but fewer came than --max, or none at all"


def receive(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A queue, or with --subscription a topic.")],
    primary: Primary = None,
    config: Config = None,
    credential: Credential = None,
    subscription: Annotated[str | None, typer.Option(metavar="NAME", help="A subscription of the topic.")] = None,
    max_: Annotated[
        int | None, typer.Option("--max", metavar="N", help="End after so many messages.  [default: 1]")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All of them: until nothing comes any more for --wait.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until interrupted, or until --max.")
    ] = False,
    wait: Annotated[str, typer.Option(metavar="TIME", help="How long to wait for a message.")] = "2s",
    peek: Annotated[bool, typer.Option("--peek", help="Only look: nothing is taken and nothing is locked.")] = False,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="Receive and delete: faster, and what is under way is lost if this process dies."
        ),
    ] = False,
    dead_letters: Annotated[
        bool, typer.Option("--dead-letters", help="From the dead-letter queue of the entity.")
    ] = False,
    transfer_dead_letters: Annotated[
        bool, typer.Option("--transfer-dead-letters", help="From the queue of what could not be forwarded.")
    ] = False,
    session: Annotated[str | None, typer.Option(metavar="ID", help="The session of the messages.")] = None,
    next_session: Annotated[bool, typer.Option("--next-session", help="Of the next session that is free.")] = False,
    body: Annotated[bool, typer.Option("--body", help="Print bodies only, each followed by a line break.")] = False,
    timeout: Timeout = "5s",
    as_json: Annotated[
        bool, typer.Option("--json", help="The result as JSON lines: a message each, with everything in it.")
    ] = False,
) -> None:
    """Print messages of a queue or subscription, and take them.

    A message is completed after it was printed, so nothing is lost if this process ends in between: it comes again.
    Without --max, --all or --follow one message is received. Notes go to stderr, messages to stdout.

    \b
    Examples:
      twinbus receive orders
      twinbus receive orders --peek --all
      twinbus receive orders --follow --json | jq .body
      twinbus receive orders --dead-letters --peek --max 20
      twinbus receive news --subscription paris --all --body > bodies.txt
      twinbus receive carts --session cart-7 --all
    """
    wish = Wish(
        most=_most(max_, everything=everything, follow=follow),
        wait_s=_wait_s(wait),
        follows=follow,
        peeks=peek,
        locks=not delete and not peek,
    )
    if peek and delete:
        raise OptionsError("--peek and --delete exclude each other: choose one")
    if body and as_json:
        raise OptionsError("--body and --json exclude each other: choose one")
    where = _where(
        entity, subscription, session, next_session, delete, dead_letters=dead_letters, transfer=transfer_dead_letters
    )
    printer = Printer("json" if as_json else "body" if body else "text")
    namespace = one("primary", primary, config, credential)
    hidden = sys.stdout.isatty()
    with (
        Bar("receiving", wish.most, hidden=hidden) as bar,
        receiving_from(namespace, where, seconds("--timeout", timeout)) as reception,
    ):
        code = _receive(reception, wish, printer, bar)
    if not printer.printed and not follow:
        note(f"nothing is in {where}")
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class Wish:
    most: int | None
    """None: no end by number."""
    wait_s: float
    follows: bool
    peeks: bool
    locks: bool
    """Whether messages are under lock until they are completed."""


def _most(given: int | None, *, everything: bool, follow: bool) -> int | None:
    if given is not None and everything:
        raise OptionsError("--max and --all exclude each other: choose one")
    if everything and follow:
        raise OptionsError("--all and --follow exclude each other: choose one")
    if given is not None and not 1 <= given <= MAX:
        raise OptionsError(f"--max must be from 1 to {MAX}, got {given}")
    return given if given is not None or everything or follow else 1


def _wait_s(text: str) -> float:
    value = length_s("--wait", text)
    if not 0 <= value <= 86_400:
        raise OptionsError(f"--wait must be at most 24h, got {text}")
    return value


def _where(
    entity: str,
    subscription: str | None,
    session: str | None,
    next_session: bool,
    deletes: bool,
    *,
    dead_letters: bool,
    transfer: bool,
) -> Where:
    if dead_letters and transfer:
        raise OptionsError("--dead-letters and --transfer-dead-letters exclude each other: choose one")
    if session is not None and next_session:
        raise OptionsError("--session and --next-session exclude each other: choose one")
    if (session is not None or next_session) and (dead_letters or transfer):
        raise OptionsError("dead letters have no sessions: leave --session and --next-session out")
    if not entity.strip("/ ") or (subscription is not None and not subscription.strip("/ ")):
        raise OptionsError("a queue, topic or subscription has a name, got an empty one")
    sub_queue = "deadletter" if dead_letters else "transferdeadletter" if transfer else None
    return Where(entity.strip("/"), subscription, sub_queue, session, next_session, deletes)


# --- receiving ---


def _receive(reception: Reception, wish: Wish, printer: Printer, bar: Bar) -> int:
    """The exit code."""
    reception.open()
    with _stopping() as stop:
        for found in _peeked(reception, wish, stop) if wish.peeks else _taken(reception, wish, stop):
            _show(reception, deque(found), wish, printer, stop)
            bar.done = printer.printed
    if stop.is_wished:
        return ExitCode.DONE if wish.follows else ExitCode.INTERRUPTED
    is_less = printer.printed == 0 or (wish.most is not None and printer.printed < wish.most)
    return ExitCode.NOT_ALL if is_less else ExitCode.DONE


def _show(
    reception: Reception, found: deque[ServiceBusReceivedMessage], wish: Wish, printer: Printer, stop: Stop
) -> None:
    """What was deleted already is shown in any case; what is under lock goes back, if it cannot be shown."""
    try:
        while found and not (stop.is_wished and wish.locks):
            printer.show(found[0])
            if wish.locks:
                reception.complete(found[0])
            found.popleft()
    finally:
        for message in found if wish.locks else ():
            with suppress(TwinbusError):  # then it comes again when its lock ends
                reception.give_back(message)


def _taken(reception: Reception, wish: Wish, stop: Stop) -> Iterator[list[ServiceBusReceivedMessage]]:
    left, quiet_since = wish.most, monotonic()
    while (left is None or left > 0) and not stop.is_wished:
        waited = monotonic() - quiet_since
        slice_s = SLICE_S if wish.follows else min(SLICE_S, wish.wait_s - waited)
        found = reception.take(AT_ONCE if left is None else min(AT_ONCE, left), slice_s)
        yield found
        if found:
            left = None if left is None else left - len(found)
            quiet_since = monotonic()
        elif not wish.follows and monotonic() - quiet_since >= wish.wait_s:
            return


def _peeked(reception: Reception, wish: Wish, stop: Stop) -> Iterator[list[ServiceBusReceivedMessage]]:
    left, first = wish.most, 0
    while (left is None or left > 0) and not stop.is_wished:
        found = reception.peek(AT_ONCE if left is None else min(AT_ONCE, left), first)
        yield found
        if found:
            first = (found[-1].sequence_number or 0) + 1
            left = None if left is None else left - len(found)
        elif wish.follows:
            sleep(SLICE_S)
        else:
            return


class Stop:
    """Ctrl-C or SIGTERM, noted: what is under lock is given back first. The second Ctrl-C ends it on the spot."""

    def __init__(self) -> None:
        self.is_wished = False

    def take(self, *_: object) -> None:
        if self.is_wished:
            raise KeyboardInterrupt
        self.is_wished = True


@contextmanager
def _stopping() -> Iterator[Stop]:
    stop = Stop()
    before = {number: signal.signal(number, stop.take) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- printing ---


class Printer:
    """Messages on stdout, one after the other, each written out before it counts as received."""

    def __init__(self, form: str) -> None:
        self._form = form
        self.printed = 0

    def show(self, message: ServiceBusReceivedMessage) -> None:
        if self._form == "body":
            body = incoming.body_bytes(message)
            if sys.stdout.isatty():  # a terminal would obey what is in it
                body = shown(body.decode("utf-8", "replace")).encode()
            data = body + b"\n"
        else:
            text = json_text(incoming.document(message)) if self._form == "json" else incoming.text_of(message)
            data = f"{text}\n".encode(errors="replace")
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise TwinbusError(f"the output cannot be written: {error.strerror}") from None
        self.printed += 1
