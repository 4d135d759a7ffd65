"""The demo's pipeline, a process of its own: `python -m twinbus.demo.pipeline LEDGER REPORT`

Spark takes some seconds to start, so it starts early and then reads requests from its standard input, one word a line:
`drain` brings the backlog home, `report` reads the ledger. Each answer is one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.client.namespace import Namespace
from twinbus.demo.processes import PRIMARY_VARIABLE, SECONDARY_VARIABLE
from twinbus.errors import TwinbusError
from twinbus.spark.session import FOR_LITTLE_DATA, ensure_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from twinbus.spark.drain.result import DrainResult
    from twinbus.spark.jobs.findings import Findings

HORIZON_MIN = 1


def drain_backlog(spark: SparkSession, ledger: Path) -> DrainResult:
    from twinbus.spark.access import Access
    from twinbus.spark.drain.drain import drain
    from twinbus.spark.drain.options import DrainOptions

    name = Namespace.from_connection_string(os.environ[PRIMARY_VARIABLE]).name
    assert name is not None  # what `twinbus serve` prints has one
    options = DrainOptions(
        primary=Access(f"env:{PRIMARY_VARIABLE}"),
        secondary=Access(f"env:{SECONDARY_VARIABLE}"),
        primary_name=name,
        ledger=str(ledger),
    )
    return drain(spark, options)


def findings_in(spark: SparkSession, ledger: Path, store: Path | None = None) -> Findings:
    from twinbus.cost.prices import load_prices
    from twinbus.spark.compaction.compaction import compact_ledger
    from twinbus.spark.jobs.analysis import analyse
    from twinbus.spark.jobs.compaction import on

    compacted = compact_ledger(on(spark), ledger, store)
    return analyse(spark, compacted, load_prices(None), horizon_min=HORIZON_MIN, tell=lambda _text: None)


def rehearse(spark: SparkSession, ledger: Path) -> None:
    """Read the ledger once in advance: Spark takes three times as long for what it does for the first time."""
    with suppress(Exception):  # the real run reports what is wrong
        findings_in(spark, ledger, ledger.with_name("rehearsal"))


def summary_of(found: Findings) -> dict[str, Any]:
    """What the demo shows of them; the page has everything."""
    findings = found.as_dict()
    return {
        "reconciliation": {
            key: findings["reconciliation"][key] for key in ("verdict", "accepted", "lost", "classes", "entities")
        },
        "availability": findings["availability"],
        "ordering": findings["ordering"]["entities"],
        "cost": {
            "prices_as_of": found.prices_as_of,
            "operations": {rule: sum(bill.use.operations(rule) for bill in found.bills) for rule in _RULES},
            "usd_above_base": {rule: sum(bill.usd(rule) - bill.base_usd for bill in found.bills) for rule in _RULES},
        },
    }


_RULES: tuple[Any, ...] = ("documents", "full")


def answer(spark: SparkSession, request: str, ledger: Path, report: Path) -> dict[str, Any]:
    if request == "drain":
        done = drain_backlog(spark, ledger)
        if done.ending != "empty":
            raise TwinbusError(f"the backlog did not come home: {'; '.join(done.troubles) or 'nothing moved any more'}")
        return done.as_dict()
    from twinbus.spark.report.page import page

    found = findings_in(spark, ledger)
    report.write_text(page(found), encoding="utf-8")
    return summary_of(found)


def main(ledger: Path, report: Path) -> None:
    began_s = time.monotonic()
    spark = ensure_session("local[2,4]", settings=FOR_LITTLE_DATA)
    _say({"seconds": time.monotonic() - began_s})
    rehearsal = threading.Thread(target=rehearse, args=(spark, ledger), daemon=True)
    for request in map(str.strip, sys.stdin):
        if rehearsal.is_alive():
            rehearsal.join()  # two at a time would only be in each other's way
        _say(answer(spark, request, ledger, report))
        if request == "drain":
            rehearsal.start()  # everything is received now, and Spark has nothing to do


def _say(facts: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except TwinbusError as error:
        sys.exit(str(error))
