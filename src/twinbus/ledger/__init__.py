"""The record of what happened: written beside the work, read to prove that nothing is missing."""

from twinbus.ledger.kinds import Kind
from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.reader import LedgerReader, Problem
from twinbus.ledger.schema import SCHEMA_VERSION, SPARK_SCHEMA, Event, NoLedger, Record, Recorder
from twinbus.ledger.stats import stats
from twinbus.ledger.tail import LedgerTail
from twinbus.ledger.verify import Coverage, verify
from twinbus.ledger.writer import Ledger, LedgerHealth

__all__ = [
    "SCHEMA_VERSION",
    "SPARK_SCHEMA",
    "Coverage",
    "Event",
    "Kind",
    "Ledger",
    "LedgerHealth",
    "LedgerOptions",
    "LedgerReader",
    "LedgerTail",
    "NoLedger",
    "Problem",
    "Record",
    "Recorder",
    "stats",
    "verify",
]
