"""From ledger segments to Parquet, a little more at every run.

A store is a directory: `steps/date=.../` has the Parquet files, `manifest.json` says which of them count and how far
each segment has been read. Files are written first and the manifest last, in one step: a run that dies leaves files
that nobody counts, and the next one writes them again.
"""
