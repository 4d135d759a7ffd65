"""Compaction: new parts of ledger segments are added to a store of Parquet files.

A store is a directory: `steps/date=.../` has the Parquet files, `manifest.json` names those that count and how far each
segment has been read. Files are written first and the manifest last, in one step: a run that dies leaves files that do
not count, and the next one writes them again.
"""
