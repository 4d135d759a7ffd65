"""How much a report has to look at, asked before Spark starts: a JVM for little is there sooner."""

from __future__ import annotations

from pathlib import Path

from twinbus.ledger.finding import segments_and_held
from twinbus.spark.compaction import manifest as manifests
from twinbus.spark.compaction.compaction import FOLDER, new_chunks
from twinbus.spark.jobs import balance as balances
from twinbus.spark.session import SOON_THERE, is_little

LITTLE_BYTES = 64 << 20


def settings_for_extent(ledger: Path, store: Path | None, *, knows_balance: bool = True) -> dict[str, str]:
    """Settings of a session that suits what is new in a ledger, and what its store has; without `knows_balance` for
    somebody who looks at every step again.

    How few rows make a quicker session is decided later, for each question, when they can be counted.

    Raises `StoreError` if there is no such ledger, or if the store cannot be used.
    """
    store = store or ledger / FOLDER
    manifest = manifests.load(store)
    is_folded = knows_balance and set(manifest.files) <= set(balances.load(store, manifest).folded)
    unread = sum(chunk.stop - chunk.start for chunk in new_chunks(ledger, segments_and_held(ledger), manifest))
    is_soon_done = unread <= LITTLE_BYTES and (is_folded or is_little(manifest.steps))
    return SOON_THERE if is_soon_done else {}
