"""The reference page, made from the schema; `make pages` writes it."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

from twinbus.ledger.kinds import FACTS, Kind
from twinbus.ledger.options import LedgerOptions
from twinbus.ledger.schema import PER_MESSAGE_FIELDS, SCHEMA_VERSION, SPARK_SCHEMA, described_fields

PAGE = """\
# The ledger

<!-- Made from the code by `make pages`; do not edit. -->

Clients, the syphon and namespaces record what happens to every message, beside the work and without slowing it. A
ledger is a directory of segment files, each written by one process, one JSON object a line. Any number of processes may
share a directory, those of one pair: messages are known by entity and id, so each pair needs a directory of its own.

```sh
twinbus ledger tail ./ledger
twinbus ledger stats ./ledger
twinbus ledger verify ./ledger
twinbus ledger prune ./ledger --older-than 30d --dry-run
```

```python
from twinbus.ledger import Event, Kind, Ledger, LedgerReader, verify

with Ledger.at("ledger", program="shop") as ledger:
    ledger.record(Event(Kind.ACCEPTED, "orders", "contoso", message_ids=("42",), sizes=(1024,)))

for record in LedgerReader(ledger.directory).records():
    print(record.number, record.kind, record.entity)
print("complete:", verify(ledger.directory).is_complete)
```

## What is promised

* **Recording neither waits nor fails.** `record` puts the event into memory and returns, in about a microsecond.
  A thread of its own writes, at most {write_interval_ms} ms later while the disk keeps up.
* **A crash of the process** loses what was not written yet: at most the last {write_interval_ms} ms, and nothing that
  came before a `flush()`. A line that was being written is recognised as torn. A process that ended in good order
  says so with `closed`. One that was stopped without a word (`SIGTERM` that it does not handle, `kill -9`) leaves a
  mark in the shared memory of its machine: if nothing waited to be written, `verify` calls it stopped, and its records
  are complete. Otherwise, or where there is no mark (another machine, a container with memory of its own), it calls
  the process killed and its end unknown. `sys.exit` in a handler of `SIGTERM` closes the ledger.
* **A power cut** loses what was not synced yet: files are synced every {sync_interval_s:g} s, when a segment ends, and
  by `flush(sync=True)`. `opened` records the interval and which start of the machine it was: if the machine was started
  again since, or nobody can tell, as much is unknown of a process that did not close its ledger.
* **A full disk** does not stop the application. Records wait in memory, up to {memory} bytes; then new ones are
  dropped. Each of them still has its number. When writing works again, a `gap` record says which numbers are missing,
  since when and why; `close()` records what it had to give up in the same way.
* **Nothing is deleted.** When the segments of a directory have reached {directory} bytes, or the file system has less
  than {free} bytes left, the ledger behaves as with a full disk until there is room again. Finished segments never
  change: they may be compacted, copied and removed by whoever owns them. `twinbus ledger prune` removes those that a
  report has read, and notes what they had in `pruned.json`; others that are removed show as missing numbers. From four
  fifths of the limit on there are warnings: by the writer, `stats`, `verify` and the report.
* **Nothing is invented.** Every line ends with a checksum. A line that is not exactly what was written is reported
  with file and line, and so are duplicates, numbers that are there twice with different contents, and records of a
  newer schema. An event that could not be written down
  leaves a `rejected` record, and counts as missing.
* **A forked child** is a process of its own, with its own numbers and files, from its first event on. One that ends by
  `os._exit`, as those of `multiprocessing` do, has to call `flush` or `close` first.

Segments are found at any depth below the directory, so each machine may have a folder of its own; a compacted store in
it is passed over, and a folder that cannot be read is an error.

Segments are called `<when the process began>-<process>-<index>.jsonl`. The next one is begun after {segment} bytes or
{segment_age_min:g} minutes. Records of one process are in order; between processes only `at_ms` says what came first.

## A line

Values that equal their default (nothing, zero, empty) are left out. The version is {version}. It is raised only when a
field changes its meaning; new fields and new kinds are no new version. `v`, `process`, `number` and `crc` keep their
meaning for ever. The fields {per_message}
have one value for each message, in the same order, or none at all.

| field | type in Spark | what it says |
|---|---|---|
{fields}

## Kinds

*Operation* is what the service charges for each message of such an event (without messages: for each of `count`, or
once if there is no count). *Always has* are the fields that no event of the kind is without; others are there where
they are known. In what a namespace tells, `entity` or, for backlog queues, `queue` says where it happened.

| kind | recorded by | operation | what happened | always has |
|---|---|---|---|---|
{kinds}

## Options

| option of `LedgerOptions` | default |
|---|---|
{options}

## Reading it with Spark

`SPARK_SCHEMA` in `twinbus.ledger` is the text below, for `spark.read.schema(SPARK_SCHEMA).json(directory)`. A line
that is torn or not JSON is a row with its text in `_corrupt_record`; checksums are checked by `verify` only. Records
that were read twice (a segment that was copied) have the same `process` and `number`. Rows whose `v` is larger than
{version} must be counted as unknown.

<!-- not output: a schema -->
```text
{spark}
```
"""


def reference_page() -> str:
    """The page as it should be."""
    usual = LedgerOptions(directory=Path("ledger"))
    return PAGE.format(
        write_interval_ms=round(usual.write_interval_s * 1000),
        sync_interval_s=usual.sync_interval_s,
        memory=f"{usual.memory_bytes_max:,}",
        directory=f"{usual.directory_bytes_max:,}",
        free=f"{usual.free_bytes_min:,}",
        segment=f"{usual.segment_bytes_max:,}",
        segment_age_min=usual.segment_age_max_s / 60,
        version=SCHEMA_VERSION,
        per_message=", ".join(f"`{name}`" for name in PER_MESSAGE_FIELDS),
        fields="\n".join(f"| `{name}` | {kind} | {text} |" for name, (kind, text) in described_fields().items()),
        kinds="\n".join(_kind_row(kind) for kind in FACTS),
        options="\n".join(_option_rows(usual)),
        spark=SPARK_SCHEMA.replace(", ", ",\n"),
    )


def _kind_row(kind: Kind) -> str:
    by, text, promised, operation = FACTS[kind]
    return (
        f"| `{kind}` | {', '.join(by)} | {operation or ''} | {text} | {', '.join(f'`{name}`' for name in promised)} |"
    )


def _option_rows(usual: LedgerOptions) -> list[str]:
    return [f"| `{field.name}` | {_default(getattr(usual, field.name))} |" for field in fields(LedgerOptions)]


def _default(value: object) -> str:
    if isinstance(value, Path):
        return "(to be given)"
    return f"{value:,}" if isinstance(value, int | float) else f"`{value!r}`"


if __name__ == "__main__":
    sys.stdout.write(reference_page())
