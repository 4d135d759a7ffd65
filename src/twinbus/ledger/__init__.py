"""The record of what happened: written beside the work, read to prove that nothing is missing."""

from twinbus.ledger.kinds import Kind
from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.reading.reader import LedgerReader, Problem
from twinbus.ledger.reading.stats import stats
from twinbus.ledger.reading.tail import LedgerTail
from twinbus.ledger.reading.verify import Coverage, verify
from twinbus.ledger.schema import SCHEMA_VERSION, SPARK_SCHEMA, Event, NoLedger, Record, Recorder
from twinbus.ledger.writing.writer import Ledger, LedgerHealth

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
