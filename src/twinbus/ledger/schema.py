"""One event, one line: the schema of the ledger.

A line is a JSON object that stands for itself: it can be read without the lines around it, by Spark as well as by
us. It begins with the envelope (who wrote it, as which record, when), goes on with the event, and ends with a
checksum of everything before. Values that equal their default are left out.

The version `v` is raised only when a field changes its meaning. New fields and new kinds do not raise it: readers
ignore the one and pass on the other. `v`, `process`, `number` and `crc` keep their meaning in every version, so that
even a reader that is too old can say what is there and what is missing.
"""

from __future__ import annotations

from typing import Annotated, Protocol, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

SCHEMA_VERSION = 1


def _field(text: str) -> Meta:
    return Meta(description=text)


class Event(Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that happened, to none, one or many messages.

    What is known of each message stands in `message_ids`, `sizes`, `session_ids` and `sequence_numbers`: the same
    position is the same message. A batch is one event, so that a pump can afford to record everything it moves.
    Paths, names and reasons are taken as they are: no secrets.
    """

    kind: Annotated[str, _field("what happened: one of the kinds below")]
    entity: Annotated[str, _field("the queue or topic that the messages are for; never a backlog queue")] = ""
    namespace: Annotated[str, _field("where it happened")] = ""
    queue: Annotated[str, _field("path of the backlog queue that was involved")] = ""
    message_ids: Annotated[tuple[str, ...], _field("the messages")] = ()
    sizes: Annotated[tuple[int, ...], _field("encoded bytes of each message, at this stage")] = ()
    session_ids: Annotated[tuple[str, ...], _field("session of each message, empty text for none")] = ()
    sequence_numbers: Annotated[tuple[int, ...], _field("number of each message in `queue` or `entity`")] = ()
    count: Annotated[int, _field("messages or requests that are not listed in `message_ids`")] = 0
    bytes: Annotated[int, _field("bytes of what is not listed in `sizes`")] = 0
    outcome: Annotated[str, _field("the result in one word, e.g. ok, failed, opened, lost")] = ""
    condition: Annotated[str, _field("the AMQP condition, if the peer gave one")] = ""
    reason: Annotated[str, _field("why, for people; the first 4,000 characters")] = ""
    attempts: Annotated[int, _field("how many attempts this took, itself included")] = 0
    duration_us: Annotated[int, _field("how long it took, in microseconds")] = 0
    epoch: Annotated[int, _field("epoch of the entity's failover state")] = 0
    until_ms: Annotated[int, _field("UTC ms until which something waits, is scheduled, or (`gap`) was missing")] = 0
    since_ms: Annotated[int, _field("UTC ms at which what ends here, or (`gap`) is missing, began")] = 0
    missing_first: Annotated[int, _field("`gap`: number of the first record that is missing")] = 0
    missing_last: Annotated[int, _field("`gap`: number of the last record that is missing")] = 0
    sync_us: Annotated[
        int, _field("`opened`: how long a record may wait to be forced to the disk, in microseconds; -1: for ever")
    ] = 0
    boot: Annotated[str, _field("`opened`: a name for the time since the machine was started")] = ""


Version = Annotated[int, _field("version of the schema")]
Process = Annotated[str, _field("random name of one writer in one process; a forked child has its own")]
Number = Annotated[int, _field("1, 2, 3 ... within `process`; a number that is not there is a record that is missing")]


class Envelope(Struct, frozen=True, gc=False):
    """What every version of the schema has."""

    v: Version
    process: Process
    number: Number


class Record(Event, frozen=True, kw_only=True, gc=False):
    """An event as it was written."""

    v: Version
    process: Process
    number: Number
    at_ms: Annotated[int, _field("when: UTC, milliseconds since 1970, by the clock of `host`")]
    monotonic_us: Annotated[int, _field("when: microseconds on a clock of `host` that is never set")]
    pid: Annotated[int, _field("id of the process in its system")]
    host: Annotated[str, _field("name of the machine")]
    program: Annotated[str, _field("name of the program, e.g. client, syphon, contoso")] = ""
    crc: Annotated[int, _field('CRC-32 of the line up to `,"crc":`')] = 0


class Recorder(Protocol):
    """Takes events. Recording neither waits nor fails."""

    def record(self, event: Event, /) -> None: ...


class NoLedger:
    """Drops all events."""

    def record(self, event: Event, /) -> None:
        pass


EVENT_FIELDS: tuple[str, ...] = Event.__struct_fields__
PER_MESSAGE_FIELDS = ("message_ids", "sizes", "session_ids", "sequence_numbers")
ENVELOPE_FIELDS: tuple[str, ...] = tuple(name for name in Record.__struct_fields__ if name not in EVENT_FIELDS)


def described_fields() -> dict[str, tuple[str, str]]:
    """Every field of a line in the order of the line: its type in Spark, and its description."""
    hints = get_type_hints(Record, include_extras=True)
    names = [*ENVELOPE_FIELDS[:-1], *EVENT_FIELDS, ENVELOPE_FIELDS[-1]]
    return {name: (_spark_type(get_args(hints[name])[0]), hints[name].__metadata__[0].description) for name in names}


def _spark_type(annotation: object) -> str:
    if get_origin(annotation) is tuple:
        return f"ARRAY<{_spark_type(get_args(annotation)[0])}>"
    return {str: "STRING", int: "BIGINT"}[annotation]  # type: ignore[index]


CORRUPT_COLUMN = "_corrupt_record"
"""Where Spark puts a line that it cannot read, such as one that was cut short by a crash."""

SPARK_SCHEMA = ", ".join(
    [*(f"{name} {kind}" for name, (kind, _) in described_fields().items()), f"{CORRUPT_COLUMN} STRING"]
)
"""For `spark.read.schema(SPARK_SCHEMA).json(directory)`. A field that is absent is null there and its default here."""
