"""`twinbus ledger`: look at what was recorded, count it, and find out whether all of it is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinbus.cli.arguments.common_options import AsJson
from twinbus.cli.arguments.completion import named_in
from twinbus.cli.arguments.option_groups import add_command, check_range, command_group
from twinbus.cli.commands.ledger_upkeep import Directory, expect, prune, ship
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import json_text, note, say, table
from twinbus.cli.progress_bar import ProgressBar
from twinbus.plain_text import first_few, on_one_line
from twinbus.units import utc_time_or_ms

if TYPE_CHECKING:
    from twinbus.ledger.reading.stats import EventCount, Stats
    from twinbus.ledger.reading.verify import Coverage, ProcessCoverage
    from twinbus.ledger.schema import Record

LOOK_EVERY_S = 0.5
LINES_MAX = 100_000
IDS_SHOWN = 3


def tail(
    directory: Directory,
    lines: Annotated[int, typer.Option("--last", "-n", metavar="N", help="How many records.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is added, until interrupted.")
    ] = False,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            autocompletion=named_in("ledger.kinds", "Kind"),
            help="Only events of this kind. Repeat for more.",
        ),
    ] = None,
    entity: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A queue or topic: only its events. Repeat for more.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON lines: a record each.")] = False,
) -> None:
    """Show the newest records of all processes, the oldest of them first.

    \b
    Examples:
      twinbus ledger tail ./ledger
      twinbus ledger tail ./ledger --follow --kind failed_over --kind recovered
      twinbus ledger tail ./ledger --last 1000 --entity orders --json
    """
    from twinbus.ledger.reading.tail import LedgerTail

    check_range("--last", lines, 0, LINES_MAX)
    _hint_at_kinds(kind or [])
    end = LedgerTail(
        directory, lambda record: (not kind or record.kind in kind) and (not entity or record.entity in entity)
    )
    show = _json_line if as_json else _text_line
    _print(end.last(lines), show)
    try:
        while follow:
            time.sleep(LOOK_EVERY_S)
            _print(end.added(), show)
    except KeyboardInterrupt:
        pass  # how following is meant to end


def stats(directory: Directory, as_json: AsJson = False) -> None:
    """Count the records: events, messages and bytes by kind and by entity.

    \b
    Examples:
      twinbus ledger stats ./ledger
      twinbus ledger stats ./ledger --json
    """
    import msgspec

    from twinbus.ledger.reading.stats import stats as count

    with ProgressBar("counting"):
        counted = count(directory)
    say(json_text(msgspec.to_builtins(counted)) if as_json else _stats_text(counted))
    _warn(directory)


def verify(directory: Directory, as_json: AsJson = False) -> None:
    """Say whether every record is there: what is missing, of which process, and why.

    Ends with 3 if records are missing, damaged or of a newer schema, if an event could not be written down (rejected),
    if a process was killed, because its last records may never have been written, or if nothing is there of a writer
    that expected.toml names. A process that is still running is fine.

    \b
    Examples:
      twinbus ledger verify ./ledger
      twinbus ledger verify s3a://bucket/ledger --json
    """
    from twinbus.ledger.reading.verify import verify as find_out

    with ProgressBar("reading"):
        found = find_out(directory)
    say(json_text(_coverage_document(found)) if as_json else _coverage_text(found))
    _warn(directory)
    if not found.is_complete:
        raise typer.Exit(ExitCode.NOT_ALL)


def _warn(directory: str) -> None:
    """Say that there is little room left, where there is."""
    from twinbus.ledger.reading.segment_files import crowded, find_segments

    for line in crowded(find_segments(directory)):
        note(line)


def _hint_at_kinds(kinds: list[str]) -> None:
    """A kind that nobody knows may come from a newer twinbus, so it is only a hint."""
    from difflib import get_close_matches

    from twinbus.ledger.kinds import Kind

    known = [kind.value for kind in Kind]
    for kind in kinds:
        if kind not in known:
            close = get_close_matches(kind, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"kinds are {', '.join(known)}"
            note(f"this version records no kind {kind!r}: {hint}")


def _print(records: list[Record], show: Callable[[Record], str]) -> None:
    if records:
        say("\n".join(map(show, records)))


def _json_line(record: Record) -> str:
    import msgspec

    return json_text(msgspec.to_builtins(record))


def _text_line(record: Record) -> str:
    facts = [
        record.entity,
        f"at {record.namespace}" if record.namespace else "",
        f"by {record.queue}" if record.queue else "",
        first_few(record.message_ids, IDS_SHOWN),
        f"{record.count:,}x" if record.count else "",
        f"{sum(record.sizes) + record.bytes:,} bytes" if record.sizes or record.bytes else "",
        record.outcome,
        record.condition,
        f"records {record.missing_first} to {record.missing_last} are missing" if record.missing_last else "",
        record.reason,
    ]
    who = on_one_line(f"{record.program or record.process}#{record.number}")
    shown = "  ".join(on_one_line(fact) for fact in facts if fact)
    return f"{utc_time_or_ms(record.at_ms)}  {on_one_line(record.kind):<22} {who:<24} {shown}".rstrip()


def _stats_text(counted: Stats) -> str:
    head = (
        f"{counted.records:,} records of {counted.processes:,} processes in {counted.segments:,} segments, "
        f"{counted.disk_bytes:,} bytes"
    )
    if counted.problems:
        head += f"; {counted.problems:,} problems, which twinbus ledger verify names"
    if not counted.records:
        return head
    return "\n\n".join(
        [
            f"{head}\nfrom {utc_time_or_ms(counted.first_ms)} to {utc_time_or_ms(counted.last_ms)}",
            table([("kind", "events", "messages", "bytes"), *_rows(counted.kinds)]),
            *(
                table([(entity, "events", "messages", "bytes"), *_rows(kinds)])
                for entity, kinds in sorted(counted.entities.items())
            ),
        ]
    )


def _rows(tallies: dict[str, EventCount]) -> list[tuple[str, int, int, int]]:
    return [(kind, tally.events, tally.messages, tally.bytes) for kind, tally in sorted(tallies.items())]


def _coverage_document(found: Coverage) -> dict[str, Any]:
    return {
        "complete": found.is_complete,
        "segments": found.segments,
        "records": found.records,
        "processes": [
            asdict(each) | {"complete": each.is_complete, "missing_count": each.missing_count}
            for each in found.processes
        ],
        "absent": [{"host": writer.host, "program": writer.program} for writer in found.absent],
        "problems": [
            {
                "file": str(problem.file),
                "lines": problem.lines,
                "count": problem.count,
                "defect": problem.defect,
                "text": problem.text,
            }
            for problem in found.problems
        ],
    }


def _coverage_text(found: Coverage) -> str:
    from twinbus.ledger.upkeep.expected import why_absent

    lines = [line for process in found.processes for line in _process_lines(process)]
    lines += [f"{problem}" for problem in found.problems]
    lines += [why_absent(writer) for writer in found.absent]
    lines = list(map(on_one_line, lines))
    verdict = "complete" if found.is_complete else "not complete"
    lines.append(
        f"{verdict}: {found.records:,} records of {len(found.processes):,} processes in {found.segments:,} segments"
    )
    return "\n".join(lines)


def _process_lines(process: ProcessCoverage) -> list[str]:
    """A line for each thing that is to be said; none for a process that is complete and closed."""
    who = f"{process.program or 'process'} {process.process} (pid {process.pid} on {process.host})"
    lines = [
        f"{who}: {gap.count:,} records are missing, {gap.first} to {gap.last}: {gap.reason or 'nobody knows why'}"
        for gap in process.missing
    ]
    if process.pruned:
        lines.append(f"{who}: {process.pruned:,} records were pruned after a report had read them")
    if process.not_understood:
        lines.append(f"{who}: {process.not_understood:,} records are of a newer schema")
    if process.ending == "killed":
        lines.append(
            f"{who}: was killed after record {process.last_number} at {utc_time_or_ms(process.last_ms)}: {process.end}"
        )
    elif process.ending == "stopped":
        lines.append(f"{who}: ended after record {process.last_number}: {process.end}")
    elif process.ending == "running":
        lines.append(f"{who}: is running; its last record so far is {process.last_number}")
    return lines


def ledger_commands() -> typer.Typer:
    app = command_group(
        "Look at what was recorded, count it, see whether all of it is there, and make room.",
        "twinbus ledger tail ./ledger --follow",
        "twinbus ledger stats ./ledger",
        "twinbus ledger verify ./ledger",
        "twinbus ledger ship ./ledger --to s3a://bucket/ledger",
        "twinbus ledger prune ./ledger --older-than 30d",
    )
    add_command(app, tail, "Show the newest records.")
    add_command(app, stats, "Count them.")
    missing = "done, and records are missing or damaged"
    add_command(app, verify, "Say whether all of them are there.", not_all=missing)
    add_command(app, expect, "Expect every process that has written so far.")
    add_command(app, ship, "Copy finished segments to an object store.", not_all="done, and segments were not copied")
    stayed = "done, and segments stay that should go; or the answer was no"
    add_command(app, prune, "Delete old segments that a report has read.", not_all=stayed)
    return app
