"""Whether a database can be trusted, as far as that can be told quickly."""

from __future__ import annotations

from pathlib import Path

from twinbus.errors import StoreDamaged
from twinbus.namespace.store.connection import Connection, execute
from twinbus.namespace.store.header import log_path

LOOK_BYTES_MAX = 64 << 20
"""What is larger is not looked at: from a slow disk it would take too long."""


def refuse_damaged(connection: Connection, path: Path) -> None:
    """Raise `StoreDamaged` if a store of up to 64 MiB is broken inside; nothing is changed.

    Found: pages that are garbage, cut off, used twice or not at all, rows out of order, values that a column does not
    allow. Not found: changed bytes inside a value (a payload, a text), and an index that disagrees with its table. In a
    larger store damage shows when somebody reads there; then the queue that was read is closed to receivers, and a
    commit that meets damage ends the work of the namespace.
    """
    files = [file for file in (path, log_path(path)) if file.exists()]
    if sum(file.stat().st_size for file in files) > LOOK_BYTES_MAX:
        return
    problems = [str(problem) for (problem,) in execute(connection, "pragma quick_check(1)")]
    if problems != ["ok"]:
        raise StoreDamaged(f"the store {path} is damaged: {' '.join(' '.join(problems).split())}")
