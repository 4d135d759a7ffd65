"""Whose ledger this is: the primaries that records name.

A message is accounted for by its entity and its id. `orders` of one primary and `orders` of another would be one, so a
ledger may tell of one primary only. What its secondary tells of itself has the secondary's name and does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from twinbus.ledger.kinds import Kind
from twinbus.pairing.backlog_queues import index_of, is_backlog_path

PRIMARIES_KEPT_MAX = 10
UNNAMED = "unnamed"
"""What a client that needs no name for its primary writes: it may be any."""

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
