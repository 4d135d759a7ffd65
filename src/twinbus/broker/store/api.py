"""The interface of a store: changes, reads, reports.

The store keeps rows; it does not know locks, credit or AMQP sections. The machine above it never waits: it submits a
numbered set of changes and continues; the store reports `Committed(number)` later, and only then do the changes become
visible. The contract, which every store (SQLite, memory, the simulator's) keeps and
`tests/unit/broker/store_contract.py` checks:

* Change sets are committed in the order of their numbers, each one whole or not at all. After a crash
  the store holds exactly the effect of sets 1..n for some n at least the last one reported.
* `Committed(n)` says that every set up to n is durable. Reports come in order; several sets may share one.
* After `CommitFailed(n, reason)` no set numbered n or higher was written, and none will be: the store
  refuses further work until `load()` is called again.
* A `Read` shows one moment: the effect of the sets 1..as_of, neither more nor less.

Times are whole milliseconds since 1970. Rows are tuples because a queue handles very many of them, and
because a tuple is what the database takes.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol

STORE_FORMAT = 2
"""Written into every store. A store with a higher number is of a newer twinbus and is refused unchanged."""


class MessageState(IntEnum):
    """The state of a stored message. The numbers are on disk and on the wire: do not change them."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class MessageRow(NamedTuple):
    """One stored message. (entity_id, sequence) is its key; its payload is the encoded message, kept as sent."""

    entity_id: int
    sequence: int
    state: MessageState
    enqueue_sequence: int
    """Its sequence where it was first enqueued; differs from `sequence` after dead-lettering."""
    enqueued_at_ms: int
    expires_at_ms: int | None
    """None: never. Only ACTIVE rows expire."""
    due_at_ms: int | None
    """When a SCHEDULED row becomes due, 0: at once, at any time; None in the other states."""
    delivery_count: int
    """Deliveries that failed so far."""
    message_id: str | None
    session_id: str | None
    dead_letter_source: str | None
    payload: bytes


class EntityRow(NamedTuple):
    """One entity. Its settings are text to the store (JSON written by the machine)."""

    entity_id: int
    path: str
    kind: str
    parent_id: int | None
    """What it belongs to: the queue of a dead-letter queue, the topic of a subscription, the subscription of a rule."""
    settings: str
    created_at_ms: int
    updated_at_ms: int


class EntitySummary(NamedTuple):
    """Totals of an entity, which the machine needs before it reads rows."""

    active: int
    deferred: int
    scheduled: int
    payload_bytes: int
    first_active_sequence: int | None
    first_expiry_ms: int | None
    """Earliest `expires_at_ms` of the ACTIVE rows."""
    first_due_ms: int | None
    """Earliest `due_at_ms` of the SCHEDULED rows."""
    next_sequence: int
    """One more than the highest sequence ever committed for the entity, deleted or not; initially 1."""
    states: int = 0
    """How many of its sessions have a state."""
    state_bytes: int = 0
    """The sum of their `state_size`."""
    due_at_once: int = 0
    """How many of the SCHEDULED rows have a `due_at_ms` of 0."""
    due_at_once_bytes: int = 0
    """The sum of their payloads."""


class StoredNamespace(NamedTuple):
    entities: tuple[EntityRow, ...]
    summaries: dict[int, EntitySummary]
    """By entity id; every entity has one."""
    next_entity_id: int
    """One more than the highest entity id ever committed: ids are never used again."""
    last_number: int
    """The last committed change set. The next one submitted must be numbered one higher."""


# --- changes ---------------------------------------------------------------------------------------


class InsertMessages(NamedTuple):
    """Store new rows; their keys are new."""

    rows: tuple[MessageRow, ...]


class InsertCopies(NamedTuple):
    """Store new rows with the same payload, usually of different entities. The payload is stored once."""

    rows: tuple[MessageRow, ...]


class AdvanceSequence(NamedTuple):
    """Skip sequences of an entity: the next one is at least this."""

    entity_id: int
    next_sequence: int


class ReplaceMessage(NamedTuple):
    """Overwrite the row with the same key (delivery count, state, payload ...)."""

    row: MessageRow


class DeleteMessages(NamedTuple):
    """Remove rows of one entity; every one of them exists."""

    entity_id: int
    sequences: tuple[int, ...]


class PutSessionState(NamedTuple):
    """Set the state of a session; None deletes it."""

    entity_id: int
    session_id: str
    state: bytes | None
    updated_at_ms: int


def state_size(session_id: str, state: bytes) -> int:
    """The size of a session state: its bytes and those of the session's name."""
    return len(session_id.encode()) + len(state)


class RememberMessageIds(NamedTuple):
    """Remember message ids until a time, and delete some whose time is over."""

    entity_id: int
    ids: tuple[str, ...]
    until_ms: int
    now_ms: int


class PutEntity(NamedTuple):
    """Create an entity or overwrite it by its id."""

    row: EntityRow


class DropEntity(NamedTuple):
    """Remove an entity with all its rows. Readers do not see it any more, however long the cleanup takes."""

    entity_id: int


Change = (
    InsertMessages
    | InsertCopies
    | AdvanceSequence
    | ReplaceMessage
    | DeleteMessages
    | PutSessionState
    | RememberMessageIds
    | PutEntity
    | DropEntity
)


# --- reads -----------------------------------------------------------------------------------------


class HeadRows(NamedTuple):
    """ACTIVE rows of an entity from a sequence upwards."""

    entity_id: int
    from_sequence: int
    rows_max: int
    bytes_max: int
    session_id: str | None = None
    """Only rows of this session; None: all rows."""


class RangeRows(NamedTuple):
    """The same for rows in any state."""

    entity_id: int
    from_sequence: int
    rows_max: int
    bytes_max: int
    session_id: str | None = None


class NamedRows(NamedTuple):
    """Exactly these rows of an entity, as far as they exist, by ascending sequence."""

    entity_id: int
    sequences: tuple[int, ...]


class ExpiredRows(NamedTuple):
    """ACTIVE rows whose `expires_at_ms` is at or before the given time, earliest first, then by sequence.

    Only rows after the point (`after_ms`, `after_sequence`) in that order; the default is before all rows.
    """

    entity_id: int
    until_ms: int
    rows_max: int
    bytes_max: int
    after_ms: int = -1
    after_sequence: int = 0


class DueRows(NamedTuple):
    """SCHEDULED rows whose `due_at_ms` is at or before the given time, in the same way."""

    entity_id: int
    until_ms: int
    rows_max: int
    bytes_max: int
    after_ms: int = -1
    after_sequence: int = 0


class WaitingSessions(NamedTuple):
    """Sessions of an entity that have ACTIVE rows, by name: `SessionsRead`."""

    entity_id: int
    after: str | None
    """Only names after this one; None: all. The empty name is valid."""
    excluded: tuple[str, ...]
    most: int


class KnownSessions(NamedTuple):
    """Sessions of an entity that have rows or a state, by name: `SessionsRead`."""

    entity_id: int
    updated_after_ms: int | None
    """Only those whose state was set later, with rows or without; None: all."""
    skip: int
    most: int


class SessionStateOf(NamedTuple):
    """The state of a session: `StateRead`."""

    entity_id: int
    session_id: str
    known: int = 0
    """What was known to be committed when it was requested: tells its answer from one to an older request."""


class KnownIds(NamedTuple):
    """Those of these ids that are remembered at a time: `IdsRead`."""

    entity_id: int
    ids: tuple[str, ...]
    now_ms: int


RowRequest = HeadRows | RangeRows | NamedRows | ExpiredRows | DueRows
ReadRequest = RowRequest | WaitingSessions | KnownSessions | SessionStateOf | KnownIds


# --- reports ---------------------------------------------------------------------------------------


class StateGrowth(NamedTuple):
    """By how much the number and size of an entity's session states grew; both may be negative."""

    entity_id: int
    states: int
    size_bytes: int


class Committed(NamedTuple):
    number: int
    states: tuple[StateGrowth, ...] = ()
    """At least one entry for every entity whose states were set."""


class CommitFailed(NamedTuple):
    number: int
    reason: str


class RowsRead(NamedTuple):
    request: RowRequest
    rows: tuple[MessageRow, ...]
    """At least one row if any matches, even one larger than `bytes_max`. A store may stop before a limit is reached
    (never for NamedRows): see `complete`."""
    complete: bool
    """No further row matched."""
    next_time_ms: int | None
    """For ExpiredRows and DueRows: the earliest such time among the rows after those in `rows`; otherwise None."""
    as_of: int


class SessionsRead(NamedTuple):
    request: WaitingSessions | KnownSessions
    names: tuple[str, ...]
    as_of: int


class StateRead(NamedTuple):
    request: SessionStateOf
    state: bytes | None
    as_of: int


class IdsRead(NamedTuple):
    request: KnownIds
    known: frozenset[str]
    as_of: int


Read = RowsRead | SessionsRead | StateRead | IdsRead


class ReadFailed(NamedTuple):
    """Nothing could be read. Unless it is for damage, the machine is rebuilt."""

    request: ReadRequest
    reason: str
    is_damage: bool = False
    """The rows are corrupt and stay so; the rest of the store may be intact."""


class DiskSpaceChanged(NamedTuple):
    """The disk became full, or has space again. Changes that free space are still committed, as far as they fit."""

    full: str | None
    """Why new messages cannot be stored; None: they can."""


Report = Committed | CommitFailed | Read | ReadFailed | DiskSpaceChanged


class Store(Protocol):
    """Storage of one namespace. No call blocks on the disk except `load`, `start` and `close`."""

    def load(self) -> StoredNamespace:
        """Read what is stored and make the store ready; called first, and again after a failure.

        Raises `StoreError` if the disk (still) cannot be used.
        """

    def start(self, report: Callable[[Report], None]) -> None:
        """Send reports there from now on, from any thread, one at a time; called once, after the first `load`.

        Raises `StoreError` if the disk accepts no writes.
        """

    def submit(self, number: int, changes: tuple[Change, ...]) -> None:
        """Queue a change set; `Committed` or `CommitFailed` follows."""

    def request(self, request: ReadRequest) -> None:
        """Queue a read; a `Read` of its kind or `ReadFailed` follows."""

    def close(self) -> None:
        """Commit what was submitted, report it, release files and locks. May be called twice."""
