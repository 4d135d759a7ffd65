"""Which namespace is the primary: the names that records give it.

A message is identified by its entity and its id. An entity of another namespace than the primary has the name of its
namespace before it, e.g. `backup:orders`. A ledger may have one primary only: `orders` of two primaries would be one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from twinbus.ledger.kinds import Kind
from twinbus.pairing.backlog.backlog_queues import index_of, is_backlog_path

if TYPE_CHECKING:
    from twinbus.spark.compaction.manifest import Process

NAMES_KEPT_MAX = 10
UNNAMED = "unnamed"
"""Written by a client that needs no name for its primary: it may be any."""
NAMESPACE_MARK = ":"
"""Between a namespace and its entity; no path has it."""

IN_NAMESPACE = (
    Kind.ACCEPTED,
    Kind.SPOOLED,
    Kind.LEFT_SPOOL,
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
"""Kinds with the primary's name in `namespace`, whoever writes them."""
IN_QUEUE = (Kind.BACKLOGGED, Kind.MOVED_TO_BACKLOG, Kind.RECEIVED_FROM_BACKLOG)
"""Kinds with the primary's name at the start of `queue`. A namespace does not write them: the secondary of several
pairs may keep one ledger."""


def primaries_in(table: Any) -> list[str]:
    """The primaries that records name, each once."""
    queues = (queue for queue in _values(table, "queue", IN_QUEUE) if is_backlog_path(queue))
    return unique_names([*_values(table, "namespace", IN_NAMESPACE), *map(_queue_owner, queues)])


def stores_in(table: Any) -> list[str]:
    """The namespaces in which records say messages were stored: each writes its own name."""
    return unique_names(_values(table, "namespace", (Kind.STORED,)))


def secondaries_in(table: Any) -> list[str]:
    """The namespaces in which records say backlog queues are."""
    has_queue = pc.not_equal(pc.fill_null(table["queue"], ""), "")
    return unique_names(pc.unique(table["namespace"].filter(has_queue)).to_pylist())


def unique_names(names: Iterable[str]) -> list[str]:
    """Names of different namespaces, in order, ten at most; case does not count.

    Of several spellings it takes the first in order, so that the order of processes and of reports makes no difference.
    """
    spellings: dict[str, str] = {}
    for name in names:
        if name and (folded := name.casefold()) != UNNAMED:
            spellings[folded] = min(name, spellings.get(folded, name))
    return sorted(spellings.values())[:NAMES_KEPT_MAX]


def primary_names(processes: Iterable[Process]) -> frozenset[str]:
    """The primary's name in lower case: as clients and syphons name it, else that of the only namespace with a ledger
    and without backlog queues. Several: the ledger has several primaries. None: unknown.
    """
    known = list(processes)
    named = {name.casefold() for process in known for name in process.primaries}
    if named:
        return frozenset(named)
    kept = _namespaces_with_ledger(known)
    rest = kept if len(kept) == 1 else kept - _secondaries(known)
    return frozenset(rest if len(rest) == 1 else ())


def unidentified_namespaces(processes: Iterable[Process]) -> frozenset[str]:
    """Namespaces with a ledger that may be the primary under another name; empty if the primary keeps a ledger."""
    known = list(processes)
    names = primary_names(known)
    if any(is_kept_by_primary(process, names) for process in known):
        return frozenset()
    return frozenset(_namespaces_with_ledger(known) - _secondaries(known) - names)


def is_kept_by_primary(process: Process, names: frozenset[str]) -> bool:
    """Whether these are records of the primary itself."""
    if process.stores:
        return any(name.casefold() in names for name in process.stores)
    return process.program.casefold() in names and set(process.roles) <= {"namespace"}


def is_kept_by_secondary(process: Process, processes: Iterable[Process]) -> bool:
    """Whether these are records of a namespace that has backlog queues, by its own or other records."""
    if "namespace" not in process.roles:
        return False
    return bool(process.secondaries or _own_names(process) & _secondaries(processes))


def split_name(entity: str) -> tuple[str, str]:
    """The namespace of an entity, empty for the primary, and its path there."""
    namespace, mark, path = entity.partition(NAMESPACE_MARK)
    return (namespace, path) if mark else ("", entity)


def _namespaces_with_ledger(processes: Iterable[Process]) -> set[str]:
    return {name for process in processes for name in _own_names(process)}


def _own_names(process: Process) -> set[str]:
    """What a namespace calls itself."""
    program = [process.program] if "namespace" in process.roles else []
    return {name.casefold() for name in process.stores or program}


def _secondaries(processes: Iterable[Process]) -> set[str]:
    return {name.casefold() for process in processes for name in process.secondaries}


def _queue_owner(queue: str) -> str:
    name = queue.rsplit("/", 2)[0]
    return name if index_of(queue, name) is not None else ""


def _values(table: Any, column: str, kinds: tuple[Kind, ...]) -> list[str]:
    of_kinds = pc.is_in(table["kind"], pa.array([str(kind) for kind in kinds]))
    return [value for value in pc.unique(table[column].filter(of_kinds)).to_pylist() if value]
