"""`twinbus syphon quarantine`: messages that could not go home, to look at, to send again, or to throw away."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from twinbus.cli.arguments.common_options import AsJson, Timeout, timeout_s
from twinbus.cli.arguments.completion import named_in
from twinbus.cli.arguments.option_groups import (
    BacklogArguments,
    LedgerArguments,
    PairArguments,
    add_command,
    command_group,
)
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import can_ask, confirm_or_exit, json_text, note, or_dash, say, table
from twinbus.cli.progress_bar import ProgressBar
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import harmless
from twinbus.units import offset_time, time_of

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.ledger import Ledger
    from twinbus.syphon.quarantine import (
        MessageNumber,
        Quarantine,
        QuarantinedMessage,
        QuarantineFilter,
        QuarantineResult,
    )

Result = TypeVar("Result")

BODY_SHOWN = 1_000
LINE_END = "\n"

Numbers = Annotated[
    list[str] | None, typer.Argument(metavar="[NUMBER]...", help="Messages, as `quarantine list` numbers them: 0/17.")
]
Reason = Annotated[
    str | None,
    typer.Option(
        metavar="REASON",
        autocompletion=named_in("syphon.pump.dead_letter_reasons", "REASONS"),
        help="Those with this reason, e.g. TwinbusTooLarge.",
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]
OneSpool = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="One folder of a spool, e.g. /var/spool/shop/1, not the backlog."),
]


def list_messages(
    namespaces: PairArguments,
    backlog: BacklogArguments,
    spool_folder: OneSpool = None,
    reason: Reason = None,
    timeout: Timeout = "15s",
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON lines: a message each.")] = False,
) -> None:
    """List what is in quarantine, the oldest of each queue first, and why.

    These are the dead-letter queues of the backlog queues. Nothing is changed.

    \b
    Examples:
      twinbus syphon quarantine list
      twinbus syphon quarantine list --reason TwinbusExpired --json
    """
    place = _place(namespaces, backlog, timeout, spool_folder)
    with ProgressBar("looking"):
        found = place.do(_list)
    wanted = [each for each in found if reason is None or each.reason == reason]
    if as_json:
        for each in wanted:
            say(json_text(document(each)))
    elif wanted or not found:
        say(list_text(wanted) if wanted else "nothing is in quarantine")
    else:
        say(f"none of {len(found):,} in quarantine has the reason {reason!r}")


def show(
    number: Annotated[
        str, typer.Argument(metavar="NUMBER", help="The message, as `quarantine list` numbers it: 0/17.")
    ],
    namespaces: PairArguments,
    backlog: BacklogArguments,
    spool_folder: OneSpool = None,
    timeout: Timeout = "15s",
    as_json: AsJson = False,
) -> None:
    """Show one message: its properties, its body, and why it is here.

    \b
    Examples:
      twinbus syphon quarantine show 0/17
      twinbus syphon quarantine show 0/17 --json
    """
    wanted = parse_number(number)
    place = _place(namespaces, backlog, timeout, spool_folder)
    with ProgressBar("looking"):
        found = place.do(lambda quarantine: quarantine.show(*wanted))
    if found is None:
        raise TwinbusError(f"no message {number} is in quarantine; see twinbus syphon quarantine list")
    if as_json:
        from twinbus.messages.contents import body_of, properties_of

        body, kind = body_of(found.encoded)
        properties, unreadable = properties_of(found.encoded)
        more = {"properties": properties, "body_kind": kind, "body": base64.b64encode(body).decode()}
        say(json_text(document(found) | more | ({"unreadable": unreadable} if unreadable else {})))
    else:
        say(show_text(found))


def redrive(
    *,
    namespaces: PairArguments,
    backlog: BacklogArguments,
    numbers: Numbers = None,
    spool_folder: OneSpool = None,
    reason: Reason = None,
    everything: Everything = False,
    records: LedgerArguments,
    timeout: Timeout = "15s",
    as_json: AsJson = False,
) -> None:
    """Send messages home once more, with their full time to live; what is refused again stays in quarantine.

    Ends with 3 if one of them stayed.

    \b
    Examples:
      twinbus syphon quarantine redrive 0/17 0/18
      twinbus syphon quarantine redrive --reason TwinbusTooLarge
    """
    choice = choice_of(numbers or (), reason, everything=everything)
    here, there = namespaces.both()
    attempt_s = timeout_s(timeout)
    place = QuarantinePlace(there, backlog.name_of(here), backlog.queues, attempt_s, spool_folder)
    with records.open() as book, ProgressBar("sending home"):
        result = place.do(lambda quarantine: quarantine.redrive(here.dial(attempt_s), choice), book)
    _show_result(result, numbers or (), "sent home", as_json=as_json)


def discard(
    *,
    namespaces: PairArguments,
    backlog: BacklogArguments,
    numbers: Numbers = None,
    spool_folder: OneSpool = None,
    reason: Reason = None,
    everything: Everything = False,
    records: LedgerArguments,
    timeout: Timeout = "15s",
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask, with --all. Needed where nobody can be asked.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Throw messages away for good; with --all after a question.

    Ends with 3 if one of them stayed.

    \b
    Examples:
      twinbus syphon quarantine discard 0/17
      twinbus syphon quarantine discard --reason TwinbusMalformed
      twinbus syphon quarantine discard --all --yes
    """
    choice = choice_of(numbers or (), reason, everything=everything)
    if everything and not yes and not can_ask():
        raise OptionsError("--all throws away everything in quarantine for good: say --yes where nobody can be asked")
    place = _place(namespaces, backlog, timeout, spool_folder)
    if everything and not yes:
        _ask_first(place)
    with records.open() as book, ProgressBar("throwing away"):
        result = place.do(lambda quarantine: quarantine.discard(choice), book)
    _show_result(result, numbers or (), "thrown away", as_json=as_json)


def _place(namespaces: PairArguments, backlog: BacklogArguments, timeout: str, spool: Path | None) -> QuarantinePlace:
    return QuarantinePlace(*namespaces.secondary_and_name(backlog), backlog.queues, timeout_s(timeout), spool)


def _ask_first(place: QuarantinePlace) -> None:
    with ProgressBar("looking"):
        found = len(place.do(_list))
    if found:
        question = f"Throw away all messages in quarantine for good? There are {found:,} now."
        confirm_or_exit(question, "nothing was thrown away")


# --- which ones ---


def parse_number(text: str) -> MessageNumber:
    """`0/17` -> queue and sequence number."""
    queue, slash, sequence = text.partition("/")
    if not slash or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (queue, sequence)):
        raise OptionsError(
            f"a message in quarantine has a number, e.g. 0/17: its queue and its place there; got {text!r}"
        )
    return int(queue), int(sequence)


def choice_of(numbers: Sequence[str], reason: str | None, *, everything: bool) -> QuarantineFilter:
    """Exactly one way of choosing: nothing is thrown away because something was left out."""
    from twinbus.syphon.quarantine import by_numbers, by_reason

    if [bool(numbers), reason is not None, everything].count(True) != 1:
        raise OptionsError("say which: numbers, e.g. 0/17, or --reason, or --all")
    if numbers:
        return by_numbers([parse_number(number) for number in numbers])
    return by_reason(reason) if reason is not None else lambda _found: True


# --- asking ---


class QuarantinePlace(NamedTuple):
    secondary: Namespace
    primary_name: str
    queue_count: int
    attempt_s: float
    spool: Path | None = None
    """A folder of a spool that is meant instead."""

    def do(self, act: Callable[[Quarantine], Awaitable[Result]], ledger: Ledger | None = None) -> Result:
        """The result of `act`. Raises `TwinbusError` if there is no backlog queue."""
        return asyncio.run(self._do(act, ledger))

    async def _do(self, act: Callable[[Quarantine], Awaitable[Result]], ledger: Ledger | None) -> Result:
        from twinbus.cli.syphon.syphon_setup import require_queues
        from twinbus.syphon.peeking.queue_discovery import QueueDiscovery
        from twinbus.syphon.quarantine import Quarantine

        if self.spool is not None:
            return await self._do_in_spool(self.spool, act)
        dial, name, count = self.secondary.dial(self.attempt_s), self.primary_name, self.queue_count
        queues = require_queues(name, await QueueDiscovery(dial, name, count, attempt_s=self.attempt_s).search())
        async with Quarantine(dial, name, count, queues=queues, attempt_s=self.attempt_s, ledger=ledger) as quarantine:
            return await act(quarantine)

    async def _do_in_spool(self, path: Path, act: Callable[[Quarantine], Awaitable[Result]]) -> Result:
        """Nothing is recorded: a spool is not a namespace of a service."""
        from twinbus.spool.folder import SpoolDirectory
        from twinbus.spool.open_spool import OpenSpool, SpoolRoutes
        from twinbus.syphon.quarantine import Quarantine

        directory = SpoolDirectory(path.absolute().parent, self.primary_name)
        directory.open_existing()
        folder, dial = directory.take_one(path.absolute()), self.secondary.dial(self.attempt_s)
        routes = SpoolRoutes(primary_name=self.primary_name, primary=dial, secondary=dial)
        spool = OpenSpool(folder, routes, bytes_max=0)
        try:
            await spool.open()
        except BaseException:
            folder.release()
            raise
        try:
            name, queues = self.primary_name, spool.queue_indexes
            async with Quarantine(spool.dial, name, len(queues), queues=queues, attempt_s=self.attempt_s) as quarantine:
                return await act(quarantine)
        finally:
            await spool.close()


async def _list(quarantine: Quarantine) -> list[QuarantinedMessage]:
    """Without the messages themselves: there may be more of them than memory."""
    return [replace(each, encoded=b"") async for each in quarantine.list()]


# --- telling ---


def _show_result(result: QuarantineResult, numbers: Sequence[str], what: str, *, as_json: bool) -> None:
    seen = {*result.done, *result.kept}
    kept = result.kept | {each: "is not in quarantine" for each in map(parse_number, numbers) if each not in seen}
    done = [number_text(number) for number in sorted(result.done)]
    if as_json:
        say(json_text({"done": done, "kept": {number_text(number): why for number, why in kept.items()}}))
    else:
        say(f"{len(done):,} {what}" + (f": {', '.join(done)}" if 0 < len(done) <= 10 else ""))
        for number, why in kept.items():
            note(f"{number_text(number)} stays: {why}")
    if kept:
        raise typer.Exit(ExitCode.NOT_ALL)


def number_text(number: MessageNumber) -> str:
    return f"{number[0]}/{number[1]}"


def document(found: QuarantinedMessage) -> dict[str, Any]:
    """Everything but the message itself, for programs."""
    values = {each.name: getattr(found, each.name) for each in fields(found) if each.name != "encoded"}
    return {"number": number_text(found.number)} | values


def list_text(found: Sequence[QuarantinedMessage]) -> str:
    from twinbus.units import size_text

    rows = [
        (
            number_text(each.number),
            or_dash(each.path),
            or_dash(each.message_id),
            size_text(each.size),
            or_dash(each.reason),
        )
        for each in found
    ]
    return table([("number", "destination", "message id", "size", "reason"), *rows])


def show_text(found: QuarantinedMessage) -> str:
    from twinbus.messages.contents import body_of, properties_of

    when = "?" if found.enqueued_ms is None else offset_time(time_of(found.enqueued_ms))
    body, kind = body_of(found.encoded)
    properties, unreadable = properties_of(found.encoded)
    lines = [
        f"number       {number_text(found.number)}",
        f"destination  {or_dash(found.path)}",
        f"message id   {or_dash(found.message_id)}",
        f"reason       {or_dash(found.reason)}",
        f"             {or_dash(found.description)}",
        f"in backlog   since {when}",
        f"size         {found.size:,} bytes",
        *(f"property     {or_dash(name)} = {or_dash(value)}" for name, value in properties.items()),
        *(f"unreadable   {or_dash(name)}: {or_dash(why)}" for name, why in unreadable.items()),
        f"body         {kind}, {len(body):,} bytes",
    ]
    shown = body[:BODY_SHOWN].decode("utf-8", "replace")
    more = "" if len(body) <= BODY_SHOWN else f"\n... and {len(body) - BODY_SHOWN:,} bytes more: --json has all"
    return "\n".join(lines) + (f"\n\n{harmless(shown, kept=LINE_END)}{more}" if body else "")


def quarantine_commands() -> typer.Typer:
    app = command_group(
        "Look at messages that could not go home, send them again, or throw them away.",
        "twinbus syphon quarantine list",
        "twinbus syphon quarantine redrive --reason TwinbusTooLarge",
        "twinbus syphon quarantine discard 0/17",
    )
    stayed = "done, and some of the messages stayed in quarantine"
    add_command(app, list_messages, "List them.", name="list")
    add_command(app, show, "Show one.")
    add_command(app, redrive, "Send them home once more.", not_all=stayed)
    add_command(app, discard, "Throw them away.", not_all=stayed)
    return app
