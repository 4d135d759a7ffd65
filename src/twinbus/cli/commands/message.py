"""`twinbus message`: single messages, to look at, to resubmit, to dead-letter, or to purge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import typer

from twinbus.cli.arguments.common_options import AsJson, Timeout, timeout_s
from twinbus.cli.arguments.completion import one_of
from twinbus.cli.arguments.namespaces import SIDES
from twinbus.cli.arguments.option_groups import (
    ArgumentGroup,
    BacklogArguments,
    PairArguments,
    add_command,
    command_group,
    option,
)
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import can_ask, confirm_or_exit, json_text, note, or_dash, say, table
from twinbus.cli.progress_bar import ProgressBar
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import harmless
from twinbus.units import rough_duration, size_text

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace
    from twinbus.messages.browsed_message import BrowsedMessage
    from twinbus.messages.browser import MessagePage
    from twinbus.messages.changes import CountedChoice, MessageChanges
    from twinbus.messages.choice import MessageChoice
    from twinbus.messages.place import MessagePlace
    from twinbus.transport.connection import NamespaceConnection

Result = TypeVar("Result")
BODY_SHOWN = 1_000
DEFAULT_LIMIT = 20
LIMIT_MAX = 10_000

Entity = Annotated[str, typer.Argument(metavar="ENTITY", help="A queue or topic, e.g. orders.")]
Numbers = Annotated[
    list[int] | None, typer.Argument(metavar="[NUMBER]...", help="Messages by sequence number, as `peek` shows it.")
]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]


@dataclass(frozen=True, kw_only=True)
class MessagePlaceArguments(ArgumentGroup):
    panel: ClassVar[str] = "Where"
    side: str = option(
        "primary",
        "SIDE",
        "The namespace: primary or secondary. On the secondary, e.g. contoso/x-servicebus-transfer/0 is a backlog "
        "queue.",
        autocompletion=one_of(*SIDES),
    )
    subscription: str | None = option(None, "NAME", "A subscription: ENTITY is its topic.")

    def namespace(self, namespaces: PairArguments) -> Namespace:
        """Raises `OptionsError`."""
        if self.side not in SIDES:
            raise OptionsError(f"--side takes {' or '.join(SIDES)}, got {self.side!r}")
        return namespaces.one(self.side)

    def place(self, entity: str, *, is_dead_letters: bool) -> MessagePlace:
        """Raises `OptionsError`."""
        from twinbus.messages.place import MessagePlace

        return MessagePlace.parse(entity, self.subscription, is_dead_letters=is_dead_letters)


@dataclass(frozen=True, kw_only=True)
class MessageFilterArguments(ArgumentGroup):
    panel: ClassVar[str] = "Which messages"
    message_id: list[str] | None = option(None, "ID", "The message id. Repeat for more.", "--id")
    session: str | None = option(None, "ID", "The session of the messages.")
    property_: list[str] | None = option(
        None, "NAME=TEXT", "An application property and its value. Repeat: all of them must fit.", "--property"
    )

    def choice(self, numbers: Sequence[int] | None, reason: str | None) -> MessageChoice:
        """Raises `OptionsError`."""
        from twinbus.messages.choice import MessageChoice, parse_property

        return MessageChoice(
            sequences=frozenset(numbers or ()),
            ids=frozenset(self.message_id or ()),
            session_id=self.session,
            properties=dict(map(parse_property, self.property_ or ())),
            reason=reason,
        )


DeadLetters = Annotated[bool, typer.Option("--dead-letters", help="From the dead-letter queue of the entity.")]
DeadLetterReason = Annotated[
    str | None,
    typer.Option("--reason", metavar="REASON", help="Those with this reason, e.g. MaxDeliveryCountExceeded."),
]


def peek_messages(
    entity: Entity,
    where: MessagePlaceArguments,
    which: MessageFilterArguments,
    namespaces: PairArguments,
    numbers: Numbers = None,
    dead_letters: DeadLetters = False,
    reason: DeadLetterReason = None,
    limit: Annotated[int, typer.Option("--max", metavar="N", help="End after this many messages.")] = DEFAULT_LIMIT,
    first: Annotated[int, typer.Option("--from", metavar="NUMBER", help="Look from this sequence number on.")] = 1,
    full: Annotated[bool, typer.Option("--full", help="Each with its properties and its body.")] = False,
    timeout: Timeout = "15s",
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON lines: a message each, whole.")] = False,
) -> None:
    """Look at messages without taking or locking them, or search for some.

    Nothing is changed. Up to 10,000 messages are looked at, each of them a billable operation; if there are more, the
    last line says where to go on. Where a queue demands sessions, up to 100 of them are looked into.

    \b
    Examples:
      twinbus message peek orders
      twinbus message peek orders --id 42 --full
      twinbus message peek orders --dead-letters --reason TTLExpiredException
      twinbus message peek orders --session s1 --property customer=7
      twinbus message peek prices --subscription audit
      twinbus message peek contoso/x-servicebus-transfer/0 --side secondary
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise OptionsError(f"--max must be from 1 to {LIMIT_MAX}, got {limit}")
    choice, place = which.choice(numbers, reason), where.place(entity, is_dead_letters=dead_letters)

    async def look(connection: NamespaceConnection) -> MessagePage:
        from twinbus.messages.browser import find_messages

        return await find_messages(connection, place, choice, from_sequence=first, most=limit)

    found = _do(where.namespace(namespaces), timeout, f"looking into {place}", look)
    if as_json:
        for each in found.messages:
            say(json_text(each.as_whole()))
    elif full:
        say("\n\n".join([message_text(each) for each in found.messages]) or _nothing(place, found))
    else:
        say(list_text(found.messages) if found.messages else _nothing(place, found))
    if found.next_sequence is not None:
        note(f"{found.scanned:,} messages were looked at, and there are more: go on with --from {found.next_sequence}")
    elif found.sessions_left_out:
        note("there are more messages or sessions: name one with --session")


def resubmit_messages(
    entity: Entity,
    where: MessagePlaceArguments,
    which: MessageFilterArguments,
    namespaces: PairArguments,
    backlog: BacklogArguments,
    numbers: Numbers = None,
    reason: DeadLetterReason = None,
    everything: Everything = False,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="ENTITY", help="Another queue or topic to send them to.  [default: ENTITY]"),
    ] = None,
    timeout: Timeout = "15s",
    as_json: AsJson = False,
) -> None:
    """Send dead letters of a queue or subscription again: to their queue or topic, or to another one.

    Each is stored there before it leaves the dead-letter queue: if this is interrupted, a message may be there twice,
    never nowhere. It keeps its id and its properties; its time to live begins anew.

    What goes to a topic reaches all of its subscriptions that take it; what none takes is lost there. A topic without
    subscriptions is refused. An entity with duplicate detection would drop what it has seen: such a message stays until
    the entity has forgotten its id. Both are known only if the credential may read the settings (Manage).

    For a backlog queue on the secondary, messages in quarantine are sent home to the primary, as `twinbus syphon
    quarantine redrive` does.

    Ends with 3 if one of them stayed.

    \b
    Examples:
      twinbus message resubmit orders 17 18
      twinbus message resubmit orders --reason MaxDeliveryCountExceeded
      twinbus message resubmit orders --all --into orders-repair
      twinbus message resubmit shop/x-servicebus-transfer/0 --side secondary --all
    """
    choice, place = which.choice(numbers, reason), where.place(entity, is_dead_letters=True)
    _check(choice, everything=everything)
    if where.side == "secondary" and (index := _backlog_index(namespaces, backlog, place.entity)) is not None:
        if into is not None:
            raise OptionsError("--into is not for the quarantine: its messages go to the entities that they are for")
        result = _redrive(namespaces, backlog, index, choice, timeout)
    else:
        from twinbus.client.inspection.resubmit_checks import duplicate_window_s, is_read_topic
        from twinbus.messages.changes import NO_TAKER

        namespace, target = where.namespace(namespaces), into or place.entity
        window_s = duplicate_window_s(namespace, place.entity, timeout_s(timeout)) if into is None else None
        if is_read_topic(namespace, target, timeout_s(timeout)) or (place.subscription and into is None):
            note(f"{target} {NO_TAKER}")

        async def act(connection: NamespaceConnection) -> MessageChanges:
            from twinbus.messages.changes import resubmit

            return await resubmit(connection, place, choice, to=into, window_s=window_s)

        result = _do(namespace, timeout, "resubmitting", act)
    _show_changes(result, numbers, "resubmitted", as_json=as_json)


def dead_letter_messages(
    entity: Entity,
    where: MessagePlaceArguments,
    which: MessageFilterArguments,
    namespaces: PairArguments,
    why: Annotated[str, typer.Option("--why", metavar="REASON", help="The reason: others read it there.")],
    numbers: Numbers = None,
    everything: Everything = False,
    description: Annotated[str, typer.Option("--description", metavar="TEXT", help="The reason in more words.")] = "",
    timeout: Timeout = "15s",
    as_json: AsJson = False,
) -> None:
    """Put messages into the dead-letter queue, e.g. one that every consumer fails at.

    Messages that lie before a chosen one are locked for a moment, and given back. Ends with 3 if a chosen one stayed,
    e.g. because a receiver has it under lock.

    \b
    Examples:
      twinbus message dead-letter orders 17 --why Poison
      twinbus message dead-letter orders 17 --why Poison --description 'case 7'
    """
    choice, place = which.choice(numbers, None), where.place(entity, is_dead_letters=False)
    _check(choice, everything=everything)

    async def act(connection: NamespaceConnection) -> MessageChanges:
        from twinbus.messages.changes import dead_letter

        return await dead_letter(connection, place, choice, reason=why, description=description)

    result = _do(where.namespace(namespaces), timeout, "dead-lettering", act)
    _show_changes(result, numbers, "dead-lettered", as_json=as_json)


def purge_messages(
    entity: Entity,
    where: MessagePlaceArguments,
    which: MessageFilterArguments,
    namespaces: PairArguments,
    numbers: Numbers = None,
    dead_letters: DeadLetters = False,
    reason: DeadLetterReason = None,
    everything: Everything = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where nobody can be asked.")] = False,
    timeout: Timeout = "15s",
    as_json: AsJson = False,
) -> None:
    """Remove messages for good, after counting them and a question.

    Only what was counted: what comes after the question stays. At most 100,000 at a time. Ends with 3 if one of them
    stayed, or if the answer was no.

    \b
    Examples:
      twinbus message purge orders --dead-letters --all
      twinbus message purge orders --session s1
      twinbus message purge orders --id 42 --yes
    """
    choice, place = which.choice(numbers, reason), where.place(entity, is_dead_letters=dead_letters)
    _check(choice, everything=everything)
    if not yes and not can_ask():
        raise OptionsError("purge removes messages for good: say --yes where nobody can be asked")
    namespace = where.namespace(namespaces)

    async def count(connection: NamespaceConnection) -> CountedChoice:
        from twinbus.messages.changes import count_messages

        return await count_messages(connection, place, choice)

    found = _do(namespace, timeout, "counting", count)
    if found.number and not yes:
        number = f"{found.number:,} {'message' if found.number == 1 else 'messages'}"
        more = "" if found.is_all else " There are more: this is as many as one purge removes."
        confirm_or_exit(f"Remove {number} from {place} for good?{more}", "nothing was removed")

    async def act(connection: NamespaceConnection) -> MessageChanges:
        from twinbus.messages.changes import purge

        return await purge(connection, place, choice, found)

    _show_changes(_do(namespace, timeout, "removing", act), numbers, "removed", as_json=as_json)


# --- doing it ---


def _check(choice: MessageChoice, *, everything: bool) -> None:
    """Exactly one way of choosing: nothing is changed because something was left out."""
    from twinbus.messages.choice import CHOICES

    if choice.is_everything and not everything:
        raise OptionsError(f"say which: {CHOICES}")
    if everything and not choice.is_everything:
        raise OptionsError("--all means all of them: leave it out, or the others")


def _do(
    namespace: Namespace, timeout: str, what: str, act: Callable[[NamespaceConnection], Awaitable[Result]]
) -> Result:
    attempt_s = timeout_s(timeout)

    async def run() -> Result:
        from twinbus.transport.connection import NamespaceConnection

        async with NamespaceConnection(namespace.dial(attempt_s), attempt_s=attempt_s, name="messages") as connection:
            return await act(connection)

    with ProgressBar(what):
        return asyncio.run(run())


def _backlog_index(namespaces: PairArguments, backlog: BacklogArguments, entity: str) -> int | None:
    from twinbus.pairing.backlog.backlog_queues import index_of, is_backlog_path

    if not is_backlog_path(entity):
        return None
    _, name = namespaces.secondary_and_name(backlog)
    index = index_of(entity, name)
    if index is None:
        raise TwinbusError(f"{entity} is a backlog queue of another primary than {name}: give that one, or its name")
    return index


def _redrive(
    namespaces: PairArguments, backlog: BacklogArguments, index: int, choice: MessageChoice, timeout: str
) -> MessageChanges:
    from twinbus.messages.quarantine_choice import redrive_chosen

    here, there = namespaces.both()
    attempt_s = timeout_s(timeout)
    with ProgressBar("sending home"):
        return asyncio.run(
            redrive_chosen(here.dial(attempt_s), there.dial(attempt_s), backlog.name_of(here), index, choice, attempt_s)
        )


# --- telling ---


def _nothing(place: MessagePlace, found: MessagePage) -> str:
    return f"{place}: nothing there" if not found.scanned else f"{place}: none of {found.scanned:,} messages fits"


def _show_changes(result: MessageChanges, numbers: Sequence[int] | None, what: str, *, as_json: bool) -> None:
    seen = {*result.done, *result.kept}
    kept = result.kept | {each: "is not there" for each in numbers or () if each not in seen}
    if as_json:
        facts: dict[str, Any] = {"done": sorted(result.done), "kept": {str(each): why for each, why in kept.items()}}
        say(json_text(facts | {"is_all": result.is_all}))
    else:
        say(f"{len(result.done):,} {what}")
        for number, why in sorted(kept.items()):
            note(f"{number} stays: {why}")
        if not result.is_all:
            note("there are more: run it again")
    if kept or not result.is_all:
        raise typer.Exit(ExitCode.NOT_ALL)


def list_text(found: Sequence[BrowsedMessage]) -> str:
    now_ms = datetime.now(UTC).timestamp() * 1000
    has_reasons, has_sessions = (any(getattr(each, name) for each in found) for name in ("reason", "session_id"))
    heads = ("number", "message id", *(["session"] if has_sessions else []), "age", "size", "delivered", "state")
    rows = [
        (
            str(each.sequence),
            or_dash(each.message_id),
            *([or_dash(each.session_id)] if has_sessions else []),
            "?" if each.enqueued_ms is None else rough_duration(max(0.0, now_ms - each.enqueued_ms) / 1000),
            size_text(each.size),
            or_dash(each.delivery_count),
            each.state.value,
            *([or_dash(each.reason)] if has_reasons else []),
        )
        for each in found
    ]
    return table([(*heads, *(["reason"] if has_reasons else [])), *rows])


def message_text(found: BrowsedMessage) -> str:
    facts = found.as_whole(BODY_SHOWN)
    names = ("message_id", "session_id", "subject", "correlation_id", "content_type", "state", "delivery_count")
    lines = [f"#{found.sequence}"]
    lines += [f"  {name.replace('_', ' '):<16} {or_dash(facts[name])}" for name in names if facts[name] is not None]
    if found.reason or found.description:
        why = ": ".join(filter(None, (found.reason, found.description)))
        lines.append(f"  {'dead letter':<16} {or_dash(why)}")
    lines += [f"  {'property':<16} {or_dash(name)} = {or_dash(each)}" for name, each in facts["properties"].items()]
    lines += [f"  {'unreadable':<16} {name}: {or_dash(why)}" for name, why in facts.get("unreadable", {}).items()]
    lines.append(f"  {'body':<16} {facts['body_kind']}, {facts['body_bytes']:,} bytes")
    text = harmless(facts.get("body", facts.get("body_base64", "")), kept="\n\t")
    lines += [f"  {line}" for line in text.splitlines()]
    lines += [] if facts["body_is_whole"] else ["  ... and more: --json has up to 64 KB"]
    return "\n".join(lines)


def message_commands() -> typer.Typer:
    app = command_group(
        "Look at single messages, resubmit them, dead-letter them, or remove them.",
        "twinbus message peek orders --dead-letters",
        "twinbus message resubmit orders --all",
        "twinbus message purge orders --dead-letters --all",
    )
    stayed = "done, and some of the messages stayed where they were"
    add_command(app, peek_messages, "Look at some, or search.", name="peek")
    add_command(app, resubmit_messages, "Send dead letters again.", name="resubmit", not_all=stayed)
    add_command(app, dead_letter_messages, "Put some into the dead-letter queue.", name="dead-letter", not_all=stayed)
    add_command(app, purge_messages, "Remove some for good.", name="purge", not_all=stayed)
    return app
