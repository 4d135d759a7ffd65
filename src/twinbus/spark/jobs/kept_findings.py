"""Findings that are kept in a store: if nothing is new, a report needs no Spark.

They are kept with a digest of everything they follow from: the manifest and the files it names, which processes run,
which are expected, what was pruned, the horizon, the prices, and the code itself. If any of that differs they do not
count. While a namespace that keeps a ledger runs, they follow from the time of reading as well, and never count again.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec

from twinbus.cost.prices import Prices
from twinbus.errors import StoreError
from twinbus.spark.compaction.compaction import CompactedLedger
from twinbus.spark.compaction.coverage import find_coverage
from twinbus.spark.compaction.manifest import STEPS, Process
from twinbus.spark.jobs.findings import Findings

NAME = "findings.json"


class _KeptFindings(msgspec.Struct):
    of: str
    """The digest of what they follow from."""
    findings: Findings


def load(compacted: CompactedLedger, prices: Prices, *, horizon_min: int) -> Findings | None:
    """The findings that `analyse` would come to; None if they are not known."""
    try:
        kept = msgspec.json.decode(compacted.store.read(NAME), type=_KeptFindings)
    except (OSError, msgspec.DecodeError):
        return None
    return kept.findings if kept.of and kept.of == _digest(compacted, prices, horizon_min) else None


def save(compacted: CompactedLedger, prices: Prices, found: Findings, *, horizon_min: int) -> None:
    """Keep findings if they can be kept: without them the next report takes longer, and nothing else."""
    kept = _KeptFindings(_digest(compacted, prices, horizon_min), found)
    data = msgspec.json.encode(kept)
    if kept.of and msgspec.json.decode(data, type=_KeptFindings) == kept:
        with suppress(StoreError):
            compacted.store.put(NAME, data)


def _digest(compacted: CompactedLedger, prices: Prices, horizon_min: int) -> str:
    """Of everything that findings follow from; empty: not known."""
    code = _code_digest()
    try:
        # A file of another content has another version: a store may be made again with the same names.
        there = {each.name: each for each in compacted.store.files(STEPS)}
        files = [there[name] for name in compacted.manifest.files]
    except (StoreError, KeyError):
        return ""
    of = (
        msgspec.structs.replace(compacted.manifest, replaced={}),
        files,
        sorted(compacted.running),
        find_coverage(compacted).missing,  # a running process may be stuck by now
        compacted.expected,
        sorted(compacted.pruned.items()),
        horizon_min,
        prices,
        compacted.read_ms if _depends_on_now(compacted) else 0,
        code,
    )
    return sha256(msgspec.json.encode(of)).hexdigest() if code else ""


def _depends_on_now(compacted: CompactedLedger) -> bool:
    """Whether a namespace writes to the ledger: its latest records may not be written yet (`NamespaceRecords`)."""
    processes = compacted.manifest.processes
    return any(_may_be_namespace(processes.get(name, Process())) for name in compacted.running)


def _may_be_namespace(process: Process) -> bool:
    return bool(process.stores or not process.roles or "namespace" in process.roles)


@cache
def _code_digest() -> str:
    """Of the source of this package; empty if it is not in files."""
    folder = Path(__file__).parents[2]
    whole = sha256()
    files = sorted(folder.rglob("*.py"))
    for file in files:
        whole.update(f"{file.relative_to(folder)}\n".encode() + file.read_bytes())
    return whole.hexdigest() if files else ""
