"""What the buttons do. Each is a command, and calls the same function; each says which command it was.

Nothing here asks back: the page has asked, and the arguments say what was agreed to (`count`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from twinbus.client.inspection.resubmit_checks import duplicate_window_s, is_read_topic
from twinbus.client.namespace import Namespace
from twinbus.control import control_client
from twinbus.errors import OptionsError, TwinbusError
from twinbus.messages.browser import MessagePage, find_messages
from twinbus.messages.changes import (
    CHANGED_MAX,
    NO_TAKER,
    CountedChoice,
    MessageChanges,
    count_messages,
    dead_letter,
    purge,
    resubmit,
)
from twinbus.messages.choice import MessageChoice, parse_property
from twinbus.messages.place import MessagePlace
from twinbus.syphon.control import KEEP, PaceChange, choose, pause, resume, running_syphons, set_pace
from twinbus.syphon.quarantine import Quarantine, QuarantinedMessage, QuarantineResult, by_numbers
from twinbus.transport.connection import NamespaceConnection

Result = TypeVar("Result")
Arguments = Mapping[str, Any]
Answer = dict[str, Any]
SIDES = ("primary", "secondary")
NUMBERS_MAX = 10_000
SEQUENCE_MAX = 2**63 - 1
"""Pages get and send such numbers as texts: those of partitioned entities are more than JavaScript counts exactly."""
SEQUENCE_DIGITS_MAX = len(str(SEQUENCE_MAX))
TEXT_MAX = 1_000
PAGE_MESSAGES = 100
SCANNED_MAX = 2_000


@dataclass(frozen=True, slots=True)
class ConsolePair:
    """What the console is about."""

    primary: Namespace
    secondary: Namespace
    primary_name: str
    queue_count: int
    attempt_s: float
    controls: dict[str, Path]
    """By side, the control socket of an embedded namespace of this machine, as far as they were found."""

    def side(self, side: str) -> Namespace:
        return self.primary if side == "primary" else self.secondary


class ConsoleActions:
    """`do` carries one out. Raises `OptionsError` for arguments that make no sense, `TwinbusError` if it fails."""

    def __init__(self, pair: ConsolePair, queues: Callable[[], list[int]]) -> None:
        """`queues`: the indexes of backlog queues that are known to be there."""
        self._pair = pair
        self._queues = queues
        self._by_name: dict[str, Callable[[Arguments], Awaitable[Answer]]] = {
            "syphon.pause": self._pause,
            "syphon.resume": self._resume,
            "syphon.pace": self._pace,
            "quarantine.redrive": self._redrive,
            "quarantine.discard": self._discard,
            "fault.add": self._add_fault,
            "fault.clear": self._clear_fault,
            "message.resubmit": self._resubmit,
            "message.dead-letter": self._dead_letter,
            "message.purge": self._purge,
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    async def do(self, name: str, arguments: Arguments) -> Answer:
        """`text` in the answer is for people; `is_all` false: some of it was not done, and `kept` says why."""
        act = self._by_name.get(name)
        if act is None:
            raise OptionsError(f"no action is called {name[:60]!r}")
        return await act(arguments)

    # --- syphons ---

    async def _pause(self, arguments: Arguments) -> Answer:
        return await asyncio.to_thread(self._steer, arguments, pause, "paused")

    async def _resume(self, arguments: Arguments) -> Answer:
        return await asyncio.to_thread(self._steer, arguments, resume, "goes on")

    async def _pace(self, arguments: Arguments) -> Answer:
        change = PaceChange(
            rate=_number(arguments, "rate") if "rate" in arguments else KEEP,
            first=_whole(arguments, "first") if "first" in arguments else KEEP,
            entities=_names(arguments, "entities") if "entities" in arguments else KEEP,
        )
        return await asyncio.to_thread(self._steer, arguments, lambda each: set_pace(each, change), "has a new pace")

    def _steer(self, arguments: Arguments, act: Callable[[Any], Any], what: str) -> Answer:
        name = _text(arguments, "syphon")
        (syphon, *_) = choose(running_syphons(self._pair.primary_name), [name])
        act(syphon)
        return {"text": f"syphon {syphon.id} {what}", "is_all": True}

    # --- quarantine ---

    async def _redrive(self, arguments: Arguments) -> Answer:
        is_wanted = _quarantined(arguments)
        dial = await asyncio.to_thread(self._pair.primary.dial, self._pair.attempt_s)
        async with await self._quarantine() as quarantine:
            return _moved(await quarantine.redrive(dial, is_wanted), "sent home")

    async def _discard(self, arguments: Arguments) -> Answer:
        is_wanted = _quarantined(arguments)
        async with await self._quarantine() as quarantine:
            return _moved(await quarantine.discard(is_wanted), "thrown away")

    async def _quarantine(self) -> Quarantine:
        pair = self._pair
        dial = await asyncio.to_thread(pair.secondary.dial, pair.attempt_s)
        queues = self._queues()
        return Quarantine(dial, pair.primary_name, pair.queue_count, queues=queues, attempt_s=pair.attempt_s)

    # --- faults ---

    async def _add_fault(self, arguments: Arguments) -> Answer:
        control = self._control(arguments)
        wanted = {name: value for name, value in arguments.items() if name != "side"}
        said = await asyncio.to_thread(control_client.ask, control, "fault.add", wanted)
        return {"text": f"fault {said['id']} is in force", "is_all": True, "id": said["id"]}

    async def _clear_fault(self, arguments: Arguments) -> Answer:
        control = self._control(arguments)
        fault_id = None if arguments.get("id") is None else _text(arguments, "id")
        cleared = await asyncio.to_thread(control_client.ask, control, "fault.clear", {"id": fault_id})
        return {"text": f"{len(cleared)} cleared: {', '.join(cleared)}" if cleared else "no fault", "is_all": True}

    def _control(self, arguments: Arguments) -> Path:
        control = self._pair.controls.get(_side(arguments))
        if control is None:
            raise OptionsError("this namespace has no control socket on this machine: faults need one")
        return control

    # --- messages ---

    async def find(self, arguments: Arguments) -> Answer:
        """A page of messages: facts only, without bodies."""
        place, choice = _place(arguments), _choice(arguments)
        first = _sequence(_text(arguments, "from") or 1)

        async def look(connection: NamespaceConnection) -> MessagePage:
            return await find_messages(
                connection, place, choice, from_sequence=first, most=PAGE_MESSAGES, scanned_max=SCANNED_MAX
            )

        found = await self._with(arguments, look)
        return {
            "messages": [_for_page(each.as_dict()) for each in found.messages],
            "scanned": found.scanned,
            "next": None if found.next_sequence is None else str(found.next_sequence),
            "sessions_left_out": found.sessions_left_out,
        }

    async def show(self, arguments: Arguments) -> Answer:
        """One message whole, its body up to 64 KB."""
        place, choice = _place(arguments), _choice(arguments)
        found = await self._with(arguments, lambda connection: find_messages(connection, place, choice, most=1))
        if not found.messages:
            raise TwinbusError(f"that message is not in {place} any more")
        return _for_page(found.messages[0].as_whole())

    async def count(self, arguments: Arguments) -> Answer:
        """How many messages a purge would remove."""
        place, choice = _place(arguments), _choice(arguments)
        found = await self._with(arguments, lambda connection: count_messages(connection, place, choice))
        newest = sorted(map(str, found.newest))  # text: such numbers may be too large for a page's arithmetic
        return {"count": found.number, "is_all": found.is_all, "newest": newest}

    async def _resubmit(self, arguments: Arguments) -> Answer:
        place, choice = _place(arguments), _some(arguments)
        into = _text(arguments, "into") or None
        if into is not None:
            MessagePlace(into)
        if not place.is_dead_letters:
            raise OptionsError("only dead letters are resubmitted")

        window_s: float | None = None
        namespace, attempt_s, target = self._pair.side(_side(arguments)), self._pair.attempt_s, into or place.entity
        if into is None:
            window_s = await asyncio.to_thread(duplicate_window_s, namespace, target, attempt_s)
        is_topic = await asyncio.to_thread(is_read_topic, namespace, target, attempt_s)

        def act(connection: NamespaceConnection) -> Awaitable[MessageChanges]:
            return resubmit(connection, place, choice, to=into, window_s=window_s)

        answer = _changed(await self._with(arguments, act), "resubmitted")
        if is_topic or (place.subscription and into is None):
            answer |= {"text": f"{answer['text']}; {target} {NO_TAKER}"}
        return answer

    async def _dead_letter(self, arguments: Arguments) -> Answer:
        place, choice = _place(arguments), _some(arguments)
        reason, description = _text(arguments, "why"), _text(arguments, "description")
        if not reason.strip():
            raise OptionsError("a reason is needed: others read it there")
        if place.is_dead_letters:
            raise OptionsError("these are dead letters already")
        return _changed(
            await self._with(
                arguments,
                lambda connection: dead_letter(connection, place, choice, reason=reason, description=description),
            ),
            "dead-lettered",
        )

    async def _purge(self, arguments: Arguments) -> Answer:
        """Only what was counted."""
        place, choice, count = _place(arguments), _choice(arguments), _whole(arguments, "count")
        if choice.is_everything and arguments.get("all") is not True:
            raise OptionsError("say which messages, or all of them")
        newest = frozenset(map(_sequence, _list(arguments, "newest")))
        if count is None or not 0 < count <= CHANGED_MAX or not newest:
            raise OptionsError("count the messages first: a purge removes what was counted")
        counted = CountedChoice(count, True, newest)
        return _changed(
            await self._with(arguments, lambda connection: purge(connection, place, choice, counted)), "removed"
        )

    async def _with(self, arguments: Arguments, act: Callable[[NamespaceConnection], Awaitable[Result]]) -> Result:
        attempt_s = self._pair.attempt_s
        dial = await asyncio.to_thread(self._pair.side(_side(arguments)).dial, attempt_s)
        async with NamespaceConnection(dial, attempt_s=attempt_s, name="console") as connection:
            return await act(connection)


# --- arguments: whatever a page may send ---


def _text(arguments: Arguments, name: str) -> str:
    value = arguments.get(name, "")
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise OptionsError(f"{name} must be a text of at most {TEXT_MAX} characters")
    return value


def _side(arguments: Arguments) -> str:
    side = _text(arguments, "side")
    if side not in SIDES:
        raise OptionsError(f"side must be {' or '.join(SIDES)}")
    return side


def _number(arguments: Arguments, name: str) -> float | None:
    value = arguments[name]
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise OptionsError(f"{name} must be a number, or null")
    return value


def _whole(arguments: Arguments, name: str) -> int | None:
    value = arguments.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise OptionsError(f"{name} must be a whole number, or null")
    return value


def _sequence(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= SEQUENCE_DIGITS_MAX:
        value = int(value)
    if type(value) is not int or not 0 <= value <= SEQUENCE_MAX:
        raise OptionsError("a sequence number must be a whole number, and not negative")
    return value


def _list(arguments: Arguments, name: str) -> list[Any]:
    value = arguments.get(name, [])
    if not isinstance(value, list) or len(value) > NUMBERS_MAX:
        raise OptionsError(f"{name} must be a list of at most {NUMBERS_MAX:,}")
    return value


def _names(arguments: Arguments, name: str) -> frozenset[str] | None:
    if arguments[name] is None:
        return None
    found = _list(arguments, name)
    if not all(isinstance(each, str) for each in found):
        raise OptionsError(f"{name} must be names")
    return frozenset(each.strip("/ ") for each in found)


def _place(arguments: Arguments) -> MessagePlace:
    subscription = _text(arguments, "subscription") or None
    is_dead = arguments.get("dead_letters") in (True, "1", "true")
    return MessagePlace.parse(_text(arguments, "entity"), subscription, is_dead_letters=is_dead)


def _choice(arguments: Arguments) -> MessageChoice:
    numbers = map(_sequence, _list(arguments, "numbers"))
    id_, session, named = _text(arguments, "id"), _text(arguments, "session"), _text(arguments, "property")
    return MessageChoice(
        sequences=frozenset(numbers),
        ids=frozenset([id_] if id_ else []),
        session_id=session or None,
        properties=dict([parse_property(named)]) if named else {},
        reason=_text(arguments, "reason") or None,
    )


def _some(arguments: Arguments) -> MessageChoice:
    choice = _choice(arguments)
    if choice.is_everything and arguments.get("all") is not True:
        raise OptionsError("say which messages, or all of them")
    return choice


def _quarantined(arguments: Arguments) -> Callable[[QuarantinedMessage], bool]:
    numbers = _list(arguments, "numbers")
    if not all(isinstance(each, list) and len(each) == 2 for each in numbers):
        raise OptionsError("numbers must be pairs: a queue, and a place in it")
    if not numbers:
        raise OptionsError("say which messages")
    return by_numbers([(_sequence(queue), _sequence(sequence)) for queue, sequence in numbers])


# --- answers ---


def _for_page(message: Answer) -> Answer:
    return {**message, "sequence_number": str(message["sequence_number"])}


def _moved(result: QuarantineResult, what: str) -> Answer:
    kept = {f"{queue}/{sequence}": why for (queue, sequence), why in result.kept.items()}
    return _answer(len(result.done), what, kept)


def _changed(changes: MessageChanges, what: str) -> Answer:
    answer = _answer(len(changes.done), what, {str(number): why for number, why in changes.kept.items()})
    if not changes.is_all:
        answer |= {"text": f"{answer['text']}; there are more: do it again", "is_all": False}
    return answer


def _answer(done: int, what: str, kept: Mapping[str, str]) -> Answer:
    shown = dict(list(kept.items())[:20])
    why = f"; {len(kept):,} stayed: {next(iter(kept.values()))}" if kept else ""
    return {"text": f"{done:,} {what}{why}", "done": done, "kept": shown, "is_all": not kept}
