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

from twinbus.cli.arguments.common_options import Timeout, timeout_s
from twinbus.cli.arguments.option_groups import ArgumentGroup, PrimaryArguments, check_range, option
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, note
from twinbus.cli.progress_bar import ProgressBar
from twinbus.cli.receiving import MessageReceiver, ReceiveSource, body_bytes, document, receiving_from, text_of
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import shown
from twinbus.units import parse_seconds

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

AT_ONCE = 50
SLICE_S = 0.5
"""So often somebody looks whether it is to end."""
MAX = 10_000_000
FEWER = "done, but fewer came than --max, or none at all"


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    most: int | None
    """None: no end by number."""
    wait_s: float
    follows: bool
    peeks: bool
    locks: bool
    """Whether messages are under lock until they are completed."""


@dataclass(frozen=True, kw_only=True)
class ReceiveArguments(ArgumentGroup):
    """Which messages, and how."""

    subscription: str | None = option(None, "NAME", "A subscription of the topic.")
    max_: int | None = option(None, "N", "End after this many messages.  [default: 1]", "--max")
    everything: bool = option(False, None, "All of them: until nothing comes any more for --wait.", "--all")
    follow: bool = option(False, None, "Go on with what comes, until interrupted, or until --max.", "--follow", "-f")
    wait: str = option("2s", "TIME", "How long to wait for a message.")
    peek: bool = option(False, None, "Only look: nothing is taken and nothing is locked.", "--peek")
    delete: bool = option(
        False, None, "Receive and delete: faster, and what is under way is lost if this process dies.", "--delete"
    )
    dead_letters: bool = option(False, None, "From the dead-letter queue of the entity.", "--dead-letters")
    transfer_dead_letters: bool = option(
        False, None, "From the queue of what could not be forwarded.", "--transfer-dead-letters"
    )
    session: str | None = option(None, "ID", "The session of the messages.")
    next_session: bool = option(False, None, "Of the next session that is free.", "--next-session")

    def request(self) -> ReceiveRequest:
        """Raises `OptionsError` for options that exclude each other."""
        if self.max_ is not None and self.everything:
            raise OptionsError("--max and --all exclude each other: choose one")
        if self.everything and self.follow:
            raise OptionsError("--all and --follow exclude each other: choose one")
        if self.max_ is not None:
            check_range("--max", self.max_, 1, MAX)
        wait_s = parse_seconds(self.wait, "--wait")
        if not 0 <= wait_s <= 86_400:
            raise OptionsError(f"--wait must be at most 24h, got {self.wait}")
        if self.peek and self.delete:
            raise OptionsError("--peek and --delete exclude each other: choose one")
        most = self.max_ if self.max_ is not None or self.everything or self.follow else 1
        locks = not self.delete and not self.peek
        return ReceiveRequest(most, wait_s, follows=self.follow, peeks=self.peek, locks=locks)

    def source(self, entity: str) -> ReceiveSource:
        """Raises `OptionsError` for options that exclude each other."""
        if self.dead_letters and self.transfer_dead_letters:
            raise OptionsError("--dead-letters and --transfer-dead-letters exclude each other: choose one")
        if self.session is not None and self.next_session:
            raise OptionsError("--session and --next-session exclude each other: choose one")
        has_session, subscription = self.session is not None or self.next_session, self.subscription
        if has_session and (self.dead_letters or self.transfer_dead_letters):
            raise OptionsError("dead letters have no sessions: leave --session and --next-session out")
        if not entity.strip("/ ") or (subscription is not None and not subscription.strip("/ ")):
            raise OptionsError("queue, topic or subscription name must not be empty")
        sub_queue = "deadletter" if self.dead_letters else "transferdeadletter" if self.transfer_dead_letters else None
        return ReceiveSource(
            entity.strip("/"), subscription, sub_queue, self.session, self.next_session, deletes=self.delete
        )


def receive(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A queue, or with --subscription a topic.")],
    receiving: ReceiveArguments,
    namespaces: PrimaryArguments,
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
    request, source = receiving.request(), receiving.source(entity)
    if body and as_json:
        raise OptionsError("--body and --json exclude each other: choose one")
    printer = Printer("json" if as_json else "body" if body else "text")
    namespace = namespaces.namespace()
    hidden = sys.stdout.isatty()
    with (
        ProgressBar("receiving", request.most, hidden=hidden) as bar,
        receiving_from(namespace, source, timeout_s(timeout)) as receiver,
    ):
        code = _receive(receiver, request, printer, bar)
    if not printer.printed and not request.follows:
        note(f"nothing is in {source}")
    raise typer.Exit(code)


# --- receiving ---


def _receive(receiver: MessageReceiver, request: ReceiveRequest, printer: Printer, bar: ProgressBar) -> int:
    """The exit code."""
    receiver.open()
    with _stop_on_signals() as stop:
        for found in (
            _peek_batches(receiver, request, stop) if request.peeks else _receive_batches(receiver, request, stop)
        ):
            _show(receiver, deque(found), request, printer, stop)
            bar.done = printer.printed
    if stop.is_set:
        return ExitCode.DONE if request.follows else ExitCode.INTERRUPTED
    is_less = printer.printed == 0 or (request.most is not None and printer.printed < request.most)
    return ExitCode.NOT_ALL if is_less else ExitCode.DONE


def _show(
    receiver: MessageReceiver,
    found: deque[ServiceBusReceivedMessage],
    request: ReceiveRequest,
    printer: Printer,
    stop: StopRequest,
) -> None:
    """What was deleted already is shown in any case; what is under lock goes back, if it cannot be shown."""
    try:
        while found and not (stop.is_set and request.locks):
            printer.show(found[0])
            if request.locks:
                receiver.complete(found[0])
            found.popleft()
    finally:
        for message in found if request.locks else ():
            with suppress(TwinbusError):  # then it comes again when its lock ends
                receiver.give_back(message)


def _receive_batches(
    receiver: MessageReceiver, request: ReceiveRequest, stop: StopRequest
) -> Iterator[list[ServiceBusReceivedMessage]]:
    left, quiet_since = request.most, monotonic()
    while (left is None or left > 0) and not stop.is_set:
        waited = monotonic() - quiet_since
        slice_s = SLICE_S if request.follows else min(SLICE_S, request.wait_s - waited)
        found = receiver.take(AT_ONCE if left is None else min(AT_ONCE, left), slice_s)
        yield found
        if found:
            left = None if left is None else left - len(found)
            quiet_since = monotonic()
        elif not request.follows and monotonic() - quiet_since >= request.wait_s:
            return


def _peek_batches(
    receiver: MessageReceiver, request: ReceiveRequest, stop: StopRequest
) -> Iterator[list[ServiceBusReceivedMessage]]:
    left, first = request.most, 0
    while (left is None or left > 0) and not stop.is_set:
        found = receiver.peek(AT_ONCE if left is None else min(AT_ONCE, left), first)
        yield found
        if found:
            first = (found[-1].sequence_number or 0) + 1
            left = None if left is None else left - len(found)
        elif request.follows:
            sleep(SLICE_S)
        else:
            return


class StopRequest:
    """Ctrl-C or SIGTERM, noted: what is under lock is given back first. The second one ends the command on the spot.

    A plain flag: a second signal may come while the first one sets it, and `threading.Event` would deadlock then.
    """

    def __init__(self) -> None:
        self.is_set = False

    def take(self, *_: object) -> None:
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True


@contextmanager
def _stop_on_signals() -> Iterator[StopRequest]:
    stop = StopRequest()
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
            body = body_bytes(message)
            if sys.stdout.isatty():  # a terminal would obey what is in it
                body = shown(body.decode("utf-8", "replace")).encode()
            data = body + b"\n"
        else:
            text = json_text(document(message)) if self._form == "json" else text_of(message)
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
