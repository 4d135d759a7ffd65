"""Whose ledger this is: the primaries that records name.

A message is accounted for by its entity and its id; an entity of another namespace than the primary has the name of its
namespace before it, as in `backup:orders`. `orders` of one primary and `orders` of another would be one, so a ledger
may tell of one primary only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from twinbus.ledger.kinds import Kind
from twinbus.pairing.backlog_queues import index_of, is_backlog_path

if TYPE_CHECKING:
    from twinbus.spark.compaction.manifest import Process

PRIMARIES_KEPT_MAX = 10
UNNAMED = "unnamed"
"""What a client that needs no name for its primary writes: it may be any."""
MARK = ":"
"""Between the name of a namespace and an entity of it, where that is not the primary; it is in no path."""

IN_NAMESPACE = (
    Kind.ACCEPTED,
    Kind.NOT_SENT,
    Kind.CANCELLED,
    Kind.RECEIVED,
    Kind.PAIRED,
    Kind.FAULTED,
    Kind.FAILED_OVER,
    Kind.RECOVERED,
    Kind.SENT_HOME,
    Kind.DESTINATION_SKIPPED,
    Kind.DESTINATION_BACK,
)
"""Records of these kinds have the primary's name in `namespace`, whoever writes them."""

IN_QUEUE = (Kind.BACKLOGGED, Kind.RECEIVED_FROM_BACKLOG)
"""Of these kinds in `queue`, which begins with the name of whose backlog it is. A namespace does not write them: one
that is the secondary of several pairs may keep one ledger.
"""


def stores_in(table: Any) -> list[str]:
    """The namespaces that the records in a table say messages were stored in: each tells of itself."""
    return different(_values(table, "namespace", (Kind.STORED,)))


def secondaries_in(table: Any) -> list[str]:
    """The namespaces that the records in a table say backlog queues are in."""
    has_queue = pc.not_equal(pc.fill_null(table["queue"], ""), "")
    return different(pc.unique(table["namespace"].filter(has_queue)).to_pylist())


def homes(processes: Iterable[Process]) -> frozenset[str]:
    """What the primary is called, in small letters: as clients and syphons name it, or, if none does, as the only
    namespace without backlog queues that keeps a ledger names itself. Several names: the ledger tells of several
    primaries. None: nobody says.
    """
    known = list(processes)
    named = {name.casefold() for process in known for name in process.primaries}
    if named:
        return frozenset(named)
    told = _told(known)
    rest = told if len(told) == 1 else told - _secondaries(known)
    return frozenset(rest if len(rest) == 1 else ())


def _told(processes: Iterable[Process]) -> set[str]:
    """Namespaces that keep a ledger."""
    return {name.casefold() for process in processes for name in process.stores or _program(process)}


def _secondaries(processes: Iterable[Process]) -> set[str]:
    return {name.casefold() for process in processes for name in process.secondaries}


def is_kept_by_secondary(process: Process, processes: Iterable[Process]) -> bool:
    """Whether these are records of a namespace that has backlog queues, as itself or others say."""
    if "namespace" not in process.roles:
        return False
    names = {name.casefold() for name in process.stores or _program(process)}
    return bool(process.secondaries or names & _secondaries(processes))


def _program(process: Process) -> list[str]:
    return [process.program] if "namespace" in process.roles else []


def strangers(processes: Iterable[Process]) -> frozenset[str]:
    """Namespaces that keep a ledger, of which nobody says whether they are the primary: it keeps none by the name that
    clients and syphons use. Empty if the primary keeps one.
    """
    known = list(processes)
    called = homes(known)
    if any(is_kept_by_primary(process, called) for process in known):
        return frozenset()
    return frozenset(_told(known) - _secondaries(known) - called)


def split_name(entity: str) -> tuple[str, str]:
    """The namespace of an entity, empty for the primary, and its path there."""
    namespace, mark, path = entity.partition(MARK)
    return (namespace, path) if mark else ("", entity)


def is_kept_by_primary(process: Process, homes: frozenset[str]) -> bool:
    """Whether these are records of the primary itself."""
    if process.stores:
        return any(name.casefold() in homes for name in process.stores)
    return process.program.casefold() in homes and set(process.roles) <= {"namespace"}


def primaries_in(table: Any) -> list[str]:
    """The primaries that the records in a table name, each once."""
    named = _values(table, "namespace", IN_NAMESPACE)
    queues = _values(table, "queue", IN_QUEUE)
    return different([*named, *(_owner(queue) for queue in queues if is_backlog_path(queue))])


def different(names: Iterable[str]) -> list[str]:
    """Names that mean different namespaces, in order: case does not count. No more than anybody wants to read."""
    found = {name.casefold(): name for name in names if name and name.casefold() != UNNAMED}
    return sorted(found.values())[:PRIMARIES_KEPT_MAX]


def _owner(queue: str) -> str:
    name = queue.rsplit("/", 2)[0]
    return name if index_of(queue, name) is not None else ""


def _values(table: Any, column: str, kinds: tuple[Kind, ...]) -> list[str]:
    of_kinds = pc.is_in(table["kind"], pa.array([str(kind) for kind in kinds]))
    values: list[str | None] = pc.unique(table[column].filter(of_kinds)).to_pylist()
    return [value for value in values if value]
