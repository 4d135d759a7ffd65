"""The options of the source, as Spark hands them over: texts under names whose case does not matter.

All mistakes are reported at once, each with the option as people write it; values are not repeated where a secret may
have been written by mistake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from twinbus.errors import OptionsError
from twinbus.pairing.backlog.backlog_queues import backlog_path
from twinbus.spark.access import WHAT_IS_RIGHT, Access
from twinbus.spark.source.columns import COLUMNS, read_problems, write_problems
from twinbus.spark.source.consuming.staging import RECEIVE
from twinbus.spark.source.queue_offsets import (
    EARLIEST,
    EVERYTHING,
    LATEST,
    NUMBER_MAX,
    UP_TO_NOW,
    QueueOffsets,
    parse_queue_offsets,
)
from twinbus.storage import is_url, open_folder
from twinbus.transport.links.peek import DEAD_LETTER_QUEUE

BROWSE = "browse"
PARTITION_MAX = 10_000
_BROWSE_ONLY = ("startingOffsets", "endingOffsets", "fromSequenceNumber", "peekBatchSize", "failOnMissing")
_RECEIVE_ONLY = ("stagingLocation", "receiveWaitMs", "adoptStaged")
_READ = (
    "mode",
    "queues",
    "primaryNamespace",
    "backlogQueueCount",
    "deadLetter",
    "columns",
    "maxMessagesPerTrigger",
    "maxMessagesPerPartition",
    "failOnDataLoss",
    "idlePollIntervalMs",
    *_BROWSE_ONLY,
    *_RECEIVE_ONLY,
)
_WRITE = ("queue", "sendBatchSize", "generateMessageIds")
_BOTH = ("servicebus.endpoint", "servicebus.credential", "timeoutSeconds")
_SPARKS_OWN = ("path", "checkpointLocation", "queryName", "outputMode")
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    access: Access
    entities: tuple[str, ...]
    starting: QueueOffsets = EVERYTHING
    ending: QueueOffsets = UP_TO_NOW
    columns: tuple[str, ...] | None = None
    """None: all."""
    trigger_max: int | None = None
    partition_max: int = PARTITION_MAX
    page: int = 250
    fail_on_data_loss: bool = True
    fail_on_missing: bool = False
    staging: str | None = None
    """Where a stream that consumes keeps what it has received; None: it browses."""
    receive_wait_ms: int = 1_000
    adopts_staged: bool = False
    idle_poll_ms: int = 1_000
    timeout_s: float = 15.0


@dataclass(frozen=True, slots=True)
class WriteOptions:
    access: Access
    entity: str | None
    """None: a column says it."""
    batch_max: int = 500
    makes_ids: bool = False
    timeout_s: float = 15.0


def read_options(
    given: Mapping[str, str], columns: Mapping[str, str] | None = None, *, is_batch: bool | None = None
) -> ReadOptions:
    """Raises `OptionsError` with everything that is wrong, with the columns too if somebody chose them.

    `is_batch` is None while that is unknown.
    """
    options = _GivenOptions(given, (*_BOTH, *_READ))
    entities = _entities(options)
    found = ReadOptions(
        access=options.access(),
        entities=entities,
        starting=_starting(options, entities),
        ending=_queue_offsets(options, "endingOffsets", LATEST, entities),
        columns=_columns(options),
        trigger_max=options.number("maxMessagesPerTrigger", 0, 1, 2**31 - 1) or None,
        partition_max=options.number("maxMessagesPerPartition", PARTITION_MAX, 1, 2**31 - 1),
        page=options.number("peekBatchSize", 250, 1, 1_000),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        fail_on_missing=options.flag("failOnMissing"),
        staging=_staging(options),
        receive_wait_ms=options.number("receiveWaitMs", 1_000, 1, 60_000),
        adopts_staged=options.flag("adoptStaged"),
        idle_poll_ms=options.number("idlePollIntervalMs", 1_000, 0, 3_600_000),
        timeout_s=options.number("timeoutSeconds", 15, 1, 600),
    )
    if is_batch is not None:
        options.problems += _batch_problems(found) if is_batch else _stream_problems(options)
    options.problems += read_problems(columns or {})
    if columns and found.columns is not None and set(columns) != set(found.columns):
        options.problems.append("columns and the schema name different columns: give one")
    options.raise_problems()
    return found


def _batch_problems(found: ReadOptions) -> Iterator[str]:
    if LATEST in found.starting.numbers:
        yield "startingOffsets=latest is for streams: what is read at once has no later on"
    if EARLIEST in found.ending.numbers:
        yield "endingOffsets cannot be earliest: nothing would be read"
    if found.staging is not None:
        yield (
            "mode=receive is for streams, because only they say what they have processed: use readStream with "
            "trigger(availableNow=True), which ends when everything is consumed"
        )


def _stream_problems(options: _GivenOptions) -> Iterator[str]:
    if options.text("endingOffsets"):
        yield "endingOffsets is for reading at once: a stream goes on"


def _starting(options: _GivenOptions, entities: tuple[str, ...]) -> QueueOffsets:
    if not options.text("fromSequenceNumber"):
        return _queue_offsets(options, "startingOffsets", EARLIEST, entities)
    if options.text("startingOffsets"):
        options.problems.append("fromSequenceNumber is another name of startingOffsets: give one")
    return QueueOffsets(options.number("fromSequenceNumber", EARLIEST, 1, NUMBER_MAX, also={"latest": LATEST}))


def _queue_offsets(options: _GivenOptions, name: str, default: int, entities: tuple[str, ...]) -> QueueOffsets:
    text = options.text(name)
    try:
        found = QueueOffsets(default) if text is None else parse_queue_offsets(text, default)
    except ValueError as error:
        options.problems.append(f"{name} must be {error}")
        return QueueOffsets(default)
    unread = sorted(set(found.entities) - {each.lower() for each in entities})
    if unread:
        options.problems.append(f"{name} names what is not read: {', '.join(unread)}")
    return found


def _columns(options: _GivenOptions) -> tuple[str, ...] | None:
    text = options.text("columns")
    if text is None:
        return None
    named = tuple(part.strip() for part in text.split(",") if part.strip())
    options.problems += [f"there is no column {name}" for name in named if name not in COLUMNS]
    options.problems += [f"column {name} is named twice" for name, times in Counter(named).items() if times > 1]
    return named or None


def _staging(options: _GivenOptions) -> str | None:
    mode = (options.text("mode") or BROWSE).lower()
    if mode not in (BROWSE, RECEIVE):
        options.problems.append(f"mode must be {BROWSE} or {RECEIVE}, got {mode!r:.40}")
        return None
    other = _BROWSE_ONLY if mode == RECEIVE else _RECEIVE_ONLY
    options.problems += [f"{name} says nothing with mode={mode}" for name in other if options.text(name)]
    if mode == BROWSE:
        return None
    location = options.text("stagingLocation")
    if location is None:
        options.problems.append(
            "mode=receive needs a stagingLocation: a path or URL that the driver and all executors reach, where "
            "messages are between their queue and the end of their batch"
        )
        return ""
    try:
        if not is_url(location) and not location.startswith("/"):
            raise OptionsError("the path must begin with /: driver and executors work in different folders")
        open_folder(location)
    except OptionsError as error:
        options.problems.append(f"stagingLocation: {error}")
    return location


def write_options(
    given: Mapping[str, str], columns: Mapping[str, str] | None = None, *, overwrites: bool = False
) -> WriteOptions:
    """Raises `OptionsError` with everything that is wrong, with the columns too if they are known."""
    options = _GivenOptions(given, (*_BOTH, *_WRITE))
    queue, path = options.text("queue"), options.text("path")
    if queue and path and queue != path:
        options.problems.append("queue and the path say different things: give one")
    found = WriteOptions(
        access=options.access(),
        entity=queue or path,
        batch_max=options.number("sendBatchSize", 500, 1, 10_000),
        makes_ids=options.flag("generateMessageIds"),
        timeout_s=options.number("timeoutSeconds", 15, 1, 600),
    )
    if columns is not None:
        options.problems += write_problems(columns, has_target=found.entity is not None, makes_ids=found.makes_ids)
    if overwrites:
        options.problems.append('messages of a queue cannot be overwritten: use mode("append")')
    options.raise_problems()
    return found


def _entities(options: _GivenOptions) -> tuple[str, ...]:
    queues, path = options.text("queues"), options.text("path")
    if queues and path and queues != path:
        options.problems.append("queues and the path say different things: give one")
    named = [part.strip().strip("/") for part in (queues or path or "").split(",")]
    entities = [part for part in named if part]
    primary = options.text("primaryNamespace")
    if options.text("backlogQueueCount") and not primary:
        options.problems.append("backlogQueueCount says nothing without primaryNamespace")
    count = options.number("backlogQueueCount", 10, 1, 100)
    if primary:
        entities += [backlog_path(primary, index) for index in range(count)]
    if not entities:
        options.problems.append(
            "nothing says what to read: give queues (as orders, orders/$DeadLetterQueue or topic/Subscriptions/name, "
            "with commas between), or primaryNamespace for its backlog queues"
        )
    options.problems += _named_twice(entities)
    return _dead_letters(options, entities) if options.flag("deadLetter") else tuple(entities)


def _named_twice(entities: list[str]) -> list[str]:
    """The service does not heed the case of names: `Orders` and `orders` would be the same messages twice."""
    times = Counter(each.lower() for each in entities)
    twice = sorted({each for each in entities if times[each.lower()] > 1})
    return [f"named twice: {', '.join(twice)}"] if twice else []


def _dead_letters(options: _GivenOptions, entities: list[str]) -> tuple[str, ...]:
    wrong = [each for each in entities if each.lower().endswith(DEAD_LETTER_QUEUE.lower())]
    if wrong:
        options.problems.append(
            f"deadLetter=true is for queues and subscriptions, not for {', '.join(wrong)}: "
            "a dead-letter queue has none of its own"
        )
    return tuple(each + DEAD_LETTER_QUEUE for each in entities)


class _GivenOptions:
    """Options as they came, and what is wrong with them."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in dict(given).items()}
        self.problems = [_unknown(name, known) for name in self._values if not _is_known(name, known)]

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return value.strip() if value is not None and value.strip() else None

    def number(self, name: str, default: int, low: int, high: int, also: Mapping[str, int] | None = None) -> int:
        def read(text: str) -> int:
            if also is not None and text.lower() in also:
                return also[text.lower()]
            value = int(text)
            if not low <= value <= high:
                raise ValueError(text)
            return value

        words = "".join(f" or {word}" for word in also or ())
        return self._read(name, default, read, f"a number from {low} to {high}{words}")

    def flag(self, name: str, *, default: bool = False) -> bool:
        return self._read(name, default, lambda text: {"true": True, "false": False}[text.lower()], "true or false")

    def _read(self, name: str, default: _Parsed, read: Callable[[str], _Parsed], right: str) -> _Parsed:
        text = self.text(name)
        if text is None:
            return default
        try:
            return read(text)
        except (ValueError, KeyError):
            self.problems.append(f"{name} must be {right}, got {text!r:.40}")
            return default

    def access(self) -> Access:
        reference = self.text("servicebus.credential")
        if reference is None:
            self.problems.append(f"servicebus.credential is missing: where executors find it, {WHAT_IS_RIGHT}")
            return Access("")
        access = Access(reference, self.text("servicebus.endpoint"))
        self.problems += [f"servicebus.credential: {text}" for text in access.problems()]
        return access

    def raise_problems(self) -> None:
        if self.problems:
            raise OptionsError('format("servicebus"): ' + "; ".join(self.problems))


def _is_known(name: str, known: tuple[str, ...]) -> bool:
    return name in {each.lower() for each in (*known, *_SPARKS_OWN)}


def _unknown(name: str, known: tuple[str, ...]) -> str:
    if "connectionstring" in name or "key" in name.split("."):
        return f"{name} cannot be given, it would show in plans: use servicebus.credential with {WHAT_IS_RIGHT}"
    spelled: dict[str, Any] = {each.lower(): each for each in known}
    near = get_close_matches(name, spelled, 1)
    return f"there is no option {name}" + (f": do you mean {spelled[near[0]]}?" if near else "")
