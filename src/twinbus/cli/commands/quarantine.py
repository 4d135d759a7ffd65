"""`twinbus syphon quarantine`: messages that could not go home, to look at, to send again, or to throw away."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.bars import Bar
from twinbus.cli.completion import one_of, reasons
from twinbus.cli.exit_codes import ExitCode, exit_codes
from twinbus.cli.json_form import json_text
from twinbus.cli.namespaces import (
    Config,
    Credential,
    Primary,
    PrimaryName,
    QueueCount,
    Secondary,
    Timeout,
    both,
    check_count,
    name_of,
    secondary_of,
    seconds,
)
from twinbus.cli.record import LedgerFolder, record_in
from twinbus.cli.say import note, say
from twinbus.errors import DecodeError, OptionsError, TwinbusError
from twinbus.plain_text import harmless, on_one_line

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.ledger import Ledger
    from twinbus.syphon.quarantine import Aftermath, Choice, Number, Quarantine, Quarantined

BODY_SHOWN = 1_000
LINE_END = "\n"

Numbers = Annotated[
    list[str] | None, typer.Argument(metavar="[NUMBER]...", help="Messages, as `quarantine list` numbers them: 0/17.")
]
Reason = Annotated[
    str | None,
    typer.Option(metavar="REASON", autocompletion=one_of(reasons), help="Those with this reason, as TwinbusTooLarge."),
]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]
AsJson = Annotated[bool, typer.Option("--json", help="The result as JSON.")]


def list_messages(
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    reason: Reason = None,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
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
    there, name = secondary_of(primary, secondary, config, primary_name, credential)
    with Bar("looking"):
        found = asyncio.run(_list(there, name, check_count(count), seconds("--timeout", timeout)))
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
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
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
    there, name = secondary_of(primary, secondary, config, primary_name, credential)
    with Bar("looking"):
        found = asyncio.run(_show(there, name, check_count(count), seconds("--timeout", timeout), wanted))
    if found is None:
        raise TwinbusError(f"no message {number} is in quarantine; see twinbus syphon quarantine list")
    if as_json:
        body, kind = body_of(found.letter)
        properties, unreadable = properties_of(found.letter)
        more = {"properties": properties, "body_kind": kind, "body": base64.b64encode(body).decode()}
        say(json_text(document(found) | more | ({"unreadable": unreadable} if unreadable else {})))
    else:
        say(show_text(found))


def redrive(
    numbers: Numbers = None,
    reason: Reason = None,
    everything: Everything = False,
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
    ledger: LedgerFolder = None,
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
    here, there = both(primary, secondary, config, credential)
    name, attempt_s = name_of(here, primary_name), seconds("--timeout", timeout)
    with record_in(ledger) as book, Bar("sending home"):
        aftermath = asyncio.run(_redrive(here, there, name, check_count(count), attempt_s, choice, book))
    _tell(aftermath, numbers or (), "sent home", as_json=as_json)


def discard(
    numbers: Numbers = None,
    reason: Reason = None,
    everything: Everything = False,
    primary: Primary = None,
    secondary: Secondary = None,
    config: Config = None,
    credential: Credential = None,
    count: QueueCount = 10,
    primary_name: PrimaryName = None,
    ledger: LedgerFolder = None,
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
    if everything and not yes and not _can_ask():
        raise OptionsError("--all throws away everything in quarantine for good: say --yes where nobody can be asked")
    there, name = secondary_of(primary, secondary, config, primary_name, credential)
    attempt_s = seconds("--timeout", timeout)
    if everything and not yes:
        _ask_first(there, name, check_count(count), attempt_s)
    with record_in(ledger) as book, Bar("throwing away"):
        aftermath = asyncio.run(_discard(there, name, check_count(count), attempt_s, choice, book))
    _tell(aftermath, numbers or (), "thrown away", as_json=as_json)


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask_first(there: Namespace, name: str, count: int, attempt_s: float) -> None:
    """Ends with 3 if the answer is no."""
    with Bar("looking"):
        found = len(asyncio.run(_list(there, name, count, attempt_s)))
    if not found:
        return
    question = f"Throw away all messages in quarantine for good? There are {found:,} now. [y/N] "
    say(question, err=True, nl=False)  # stdout is for the result alone
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("twinbus: nothing was thrown away", err=True)
        raise typer.Exit(ExitCode.NOT_ALL)


# --- which ones ---


def parse_number(text: str) -> Number:
    """`0/17` -> queue and sequence number."""
    queue, slash, sequence = text.partition("/")
    if not slash or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (queue, sequence)):
        raise OptionsError(f"a message in quarantine has a number as 0/17, its queue and its place there, got {text!r}")
    return int(queue), int(sequence)


def choice_of(numbers: Sequence[str], reason: str | None, *, everything: bool) -> Choice:
    """Exactly one way of choosing: nothing is thrown away because something was left out."""
    from twinbus.syphon.quarantine import by_numbers, by_reason

    if [bool(numbers), reason is not None, everything].count(True) != 1:
        raise OptionsError("say which: numbers as 0/17, or --reason, or --all")
    if numbers:
        return by_numbers([parse_number(number) for number in numbers])
    return by_reason(reason) if reason is not None else lambda _found: True


# --- asking ---


async def _quarantine(
    there: Namespace, name: str, count: int, attempt_s: float, ledger: Ledger | None = None
) -> Quarantine:
    """Of the queues that are there; raises `TwinbusError` if there is none."""
    from twinbus.cli.ends import usable
    from twinbus.syphon.quarantine import Quarantine
    from twinbus.syphon.queue_search import QueueSearch

    dial = there.dial(attempt_s)
    queues = usable(name, await QueueSearch(dial, name, count, attempt_s=attempt_s).look())
    return Quarantine(dial, name, count, queues=queues, attempt_s=attempt_s, ledger=ledger)


async def _list(there: Namespace, name: str, count: int, attempt_s: float) -> list[Quarantined]:
    """Without the messages themselves: there may be more of them than memory."""
    async with await _quarantine(there, name, count, attempt_s) as quarantine:
        return [replace(each, letter=b"") async for each in quarantine.list()]


async def _show(there: Namespace, name: str, count: int, attempt_s: float, number: Number) -> Quarantined | None:
    async with await _quarantine(there, name, count, attempt_s) as quarantine:
        return await quarantine.show(*number)


async def _redrive(
    here: Namespace, there: Namespace, name: str, count: int, attempt_s: float, choice: Choice, ledger: Ledger | None
) -> Aftermath:
    async with await _quarantine(there, name, count, attempt_s, ledger) as quarantine:
        return await quarantine.redrive(here.dial(attempt_s), choice)


async def _discard(
    there: Namespace, name: str, count: int, attempt_s: float, choice: Choice, ledger: Ledger | None
) -> Aftermath:
    async with await _quarantine(there, name, count, attempt_s, ledger) as quarantine:
        return await quarantine.discard(choice)


# --- telling ---


def _tell(aftermath: Aftermath, numbers: Sequence[str], what: str, *, as_json: bool) -> None:
    seen = {*aftermath.done, *aftermath.kept}
    kept = aftermath.kept | {each: "is not in quarantine" for each in map(parse_number, numbers) if each not in seen}
    done = [written(number) for number in sorted(aftermath.done)]
    if as_json:
        say(json_text({"done": done, "kept": {written(number): why for number, why in kept.items()}}))
    else:
        say(f"{len(done):,} {what}" + (f": {', '.join(done)}" if 0 < len(done) <= 10 else ""))
        for number, why in kept.items():
            note(f"{written(number)} stays: {why}")
    if kept:
        raise typer.Exit(ExitCode.NOT_ALL)


def written(number: Number) -> str:
    return f"{number[0]}/{number[1]}"


def document(found: Quarantined) -> dict[str, Any]:
    """Everything but the message itself, for programs."""
    values = {each.name: getattr(found, each.name) for each in fields(found) if each.name != "letter"}
    return {"number": written(found.number)} | values


def list_text(found: Sequence[Quarantined]) -> str:
    from twinbus.cli import draw
    from twinbus.cli.commands.status import size

    rows = [
        (written(each.number), _word(each.path), _word(each.message_id), size(each.size), _word(each.reason))
        for each in found
    ]
    return draw.table([("number", "destination", "message id", "size", "reason"), *rows])


def show_text(found: Quarantined) -> str:
    when = "?" if found.enqueued_ms is None else datetime.fromtimestamp(found.enqueued_ms / 1000, UTC).isoformat()
    body, kind = body_of(found.letter)
    properties, unreadable = properties_of(found.letter)
    lines = [
        f"number       {written(found.number)}",
        f"destination  {_word(found.path)}",
        f"message id   {_word(found.message_id)}",
        f"reason       {_word(found.reason)}",
        f"             {_word(found.description)}",
        f"in backlog   since {when}",
        f"size         {found.size:,} bytes",
        *(f"property     {_word(name)} = {_word(value)}" for name, value in properties.items()),
        *(f"unreadable   {_word(name)}: {_word(why)}" for name, why in unreadable.items()),
        f"body         {kind}, {len(body):,} bytes",
    ]
    shown = body[:BODY_SHOWN].decode("utf-8", "replace")
    more = "" if len(body) <= BODY_SHOWN else f"\n... and {len(body) - BODY_SHOWN:,} bytes more: --json has all"
    return "\n".join(lines) + (f"\n\n{harmless(shown, kept=LINE_END)}{more}" if body else "")


def properties_of(letter: bytes) -> tuple[dict[str, str], dict[str, str]]:
    """The application properties as texts; and why others cannot be read."""
    from twinbus.amqp import sections
    from twinbus.amqp.plain_values import plain_map
    from twinbus.amqp.types import text_of

    try:
        span = sections.walk(letter).application_properties
    except DecodeError as error:
        return {}, {"properties": str(error)}
    found, missing = plain_map(letter, span)
    texts = {name: text_of(value) if isinstance(value, bytes) else str(value) for name, value in found.items()}
    return texts, {name or "properties": why for name, why in missing.items()}


def body_of(letter: bytes) -> tuple[bytes, str]:
    """The body's bytes and what kind of body that is; a value or a sequence as it is encoded."""
    from twinbus.amqp import sections

    try:
        layout = sections.walk(letter)
    except DecodeError:
        return letter, "unreadable"
    if layout.body_kind == "data":
        return b"".join(sections.data_sections(letter, layout)), "data"
    return (b"", "none") if layout.body is None else (letter[slice(*layout.body)], str(layout.body_kind))


def _word(value: object) -> str:
    return "-" if value is None else on_one_line(str(value))


EXAMPLES = """\b
Examples:
  twinbus syphon quarantine list
  twinbus syphon quarantine redrive --reason TwinbusTooLarge
  twinbus syphon quarantine discard 0/17"""


def quarantine_commands() -> typer.Typer:
    """`twinbus syphon quarantine` with its verbs."""
    epilog = exit_codes()
    app = typer.Typer(
        help="Look at messages that could not go home, send them again, or throw them away.",
        epilog=f"{EXAMPLES}\n\n{epilog}",
        rich_markup_mode=None,
        no_args_is_help=False,
        invoke_without_command=True,
        callback=_show_help,
    )
    app.command("list", epilog=epilog, short_help="List them.")(list_messages)
    app.command("show", epilog=epilog, short_help="Show one.")(show)
    kept_epilog = exit_codes(not_all="done, and some of the messages stayed in quarantine")
    app.command("redrive", epilog=kept_epilog, short_help="Send them home once more.")(redrive)
    app.command("discard", epilog=kept_epilog, short_help="Throw them away.")(discard)
    return app


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
