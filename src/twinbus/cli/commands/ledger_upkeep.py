"""`twinbus ledger expect`, `ship` and `prune`: say who should write, copy segments elsewhere, and make room."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinbus.cli.arguments.common_options import AsJson
from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import can_ask, confirm_or_exit, json_text, note, say
from twinbus.cli.progress_bar import ProgressBar
from twinbus.errors import OptionsError
from twinbus.units import parse_seconds, parse_size

if TYPE_CHECKING:
    from twinbus.ledger.upkeep.pruning import Candidate, PrunePlan
    from twinbus.ledger.upkeep.shipping import ShipResult

AT_A_TIME = 50
"""Segments; what they had is noted on the disk, then they are deleted."""
SHOWN_MAX = 20


class Compression(StrEnum):
    GZIP = "gzip"
    ZSTD = "zstd"


Store = Annotated[
    str | None,
    typer.Option(
        metavar="DIR", help="Where the compacted ledger is kept: a folder or URL. Default: compacted, below the ledger."
    ),
]
Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="Where the ledger is kept: a folder, or a URL, e.g. s3a://bucket/ledger.")
]


def expect(directory: Directory, as_json: AsJson = False) -> None:
    """Expect everybody who has written so far, from now on.

    Adds each host and program that is in the ledger, and not listed yet, to expected.toml beside the segments. From
    then on a report says "unknown" if nothing is there of one of them. Edit the list as you like.

    \b
    Examples:
      twinbus ledger expect ./ledger
      twinbus ledger expect ./ledger --json
    """
    from collections import deque

    from twinbus.ledger.reading.reader import LedgerReader
    from twinbus.ledger.upkeep.expected import EXPECTED_FILE, expect_present
    from twinbus.storage import open_folder

    with ProgressBar("reading"):
        reader = LedgerReader(directory)
        deque(reader.records(), maxlen=0)
    fresh = expect_present(directory, reader.processes.values())
    if as_json:
        say(json_text({"added": [{"host": each.host, "program": each.program} for each in fresh]}))
        return
    for each in fresh:
        say(f"expected from now on: {each}")
    say(f"{len(fresh):,} writers were added to {open_folder(directory).where(EXPECTED_FILE)}")


def prune(
    directory: Directory,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Segments last written to longer ago than this, e.g. 30d or 12h.")
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The oldest segments, until no more than this is left, e.g. 2GB or 500MB."),
    ] = None,
    store: Store = None,
    unread: Annotated[
        bool, typer.Option("--unread", help="Also what no report has read; the next one says that it is unknown.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. Needed where nobody can be asked.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete old segments to make room, after a question.

    Only what a report has read is deleted, unless you say --unread: what it had is in the store of the report, and the
    next one gives the same answer. Never a segment that a process still writes to, and nothing outside of DIR that a
    link leads to. What was deleted is noted in pruned.json beside the segments, on the disk before the first of them
    goes: it does not show as missing.

    Ends with 3 if segments stay that are old enough, or too much, because no report has read them, somebody writes to
    them, or a link leads to them.

    \b
    Examples:
      twinbus ledger prune ./ledger --older-than 30d --dry-run
      twinbus ledger prune ./ledger --keep 2GB --yes
      twinbus ledger prune s3a://bucket/ledger --older-than 90d --yes
    """
    from twinbus.ledger.reading.segment_files import STORE_FOLDER
    from twinbus.ledger.upkeep.pruning import plan, store_held
    from twinbus.storage import open_folder

    before_ms = None if older_than is None else round((time.time() - parse_seconds(older_than, "--older-than")) * 1000)
    bytes_max = None if keep is None else parse_size(keep, "--keep")
    if before_ms is None and bytes_max is None:
        raise OptionsError("say what to delete: --older-than, e.g. 30d, or --keep, e.g. 2GB, or both")
    if not (yes or dry_run or can_ask()):
        raise OptionsError("pruning deletes segments for good: say --yes where nobody can be asked")
    store = store or open_folder(directory).below(STORE_FOLDER).url
    with store_held(store):
        with ProgressBar("looking"):
            made = plan(directory, store, before_ms=before_ms, bytes_max=bytes_max, unread=unread)
        if made.chosen and not (yes or dry_run):
            _ask_first(made)
        if not dry_run:
            _delete(directory, made)
    say(json_text(_document(made, dry_run=dry_run)) if as_json else _text(directory, made, dry_run=dry_run))
    if made.kept:
        raise typer.Exit(ExitCode.NOT_ALL)


def ship(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that the ledger is kept in.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="ADDRESS", help="The address to copy to, e.g. s3a://bucket/ledger, or a folder."),
    ],
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="How often, e.g. 10s: go on until interrupted.  [default: once]")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Only what is finished now. The default.")] = False,
    compress: Annotated[
        Compression | None, typer.Option(metavar="gzip|zstd", help="Compress the copies.", case_sensitive=False)
    ] = None,
    delete: Annotated[
        bool,
        typer.Option("--delete-after-verified", help="Delete segments here once their copies were compared with them."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy finished segments to an object store, HDFS or another folder.

    A segment is finished when no process writes to it any more. Its copy is HOST/SEGMENT below the URL, and is compared
    with it after the upload. Repeat this as often as you like, also after an interruption: a copy that is there and
    right is left alone, and what was pruned there is not brought back. Nothing is deleted, unless you say
    --delete-after-verified.

    Credentials and endpoints come from the usual environment variables, e.g. AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL.
    Ends with 3 if segments could not be copied.

    \b
    Examples:
      twinbus ledger ship ./ledger --to s3a://bucket/ledger
      twinbus ledger ship ./ledger --to s3a://bucket/l --every 10s --compress gzip
      twinbus ledger ship ./ledger --to /mnt/l --delete-after-verified --json
    """
    from twinbus.errors import StoreError
    from twinbus.ledger.upkeep.shipping import Shipper

    if every is not None and once:
        raise OptionsError("say --every or --once, not both")
    every_s = None if every is None else parse_seconds(every, "--every")
    shipper = Shipper(directory, to, compress=None if compress is None else compress.value)
    try:
        while True:
            try:
                with ProgressBar("shipping") as bar:

                    def count(_: object, bar: ProgressBar = bar) -> None:
                        bar.done += 1

                    result = shipper.run(delete=delete, now_ms=time.time_ns() // 1_000_000, on_shipped=count)
            except StoreError as error:
                if every_s is None:
                    raise
                note(f"nothing was shipped: {error}")
            else:
                if every_s is None or result.shipped or result.failed:
                    say(json_text(_shipped_document(result)) if as_json else _shipped_text(result, to))
                if every_s is None:
                    break
            time.sleep(every_s)
    except KeyboardInterrupt:
        return  # how shipping again and again is meant to end
    if result.failed:
        raise typer.Exit(ExitCode.NOT_ALL)


def _shipped_document(result: ShipResult) -> dict[str, object]:
    return {
        "shipped": result.shipped,
        "shipped_bytes": result.shipped_bytes,
        "already_there": result.known,
        "pruned": result.pruned,
        "waiting": result.waiting,
        "deleted": result.deleted,
        "failed": [{"segment": name, "why": why} for name, why in result.failed.items()],
    }


def _shipped_text(result: ShipResult, to: str) -> str:
    lines = [f"{name}: not shipped: {why}" for name, why in result.failed.items()]
    if result.waiting:
        lines.append(f"{len(result.waiting):,} segments are still written to: they are shipped once they are finished")
    if result.deleted:
        lines.append(f"{len(result.deleted):,} segments were deleted here")
    pruned = f", {len(result.pruned):,} were pruned there" if result.pruned else ""
    lines.append(
        f"{len(result.shipped):,} segments were shipped to {to}, {result.shipped_bytes:,} bytes; "
        f"{result.known:,} were there already{pruned}"
    )
    return "\n".join(lines)


def _delete(directory: str, made: PrunePlan) -> None:
    from twinbus.ledger.upkeep.pruning import prune as make_room

    with ProgressBar("deleting", total=len(made.chosen)) as bar:

        def count(_: Candidate) -> None:
            bar.done += 1

        for at in range(0, len(made.chosen), AT_A_TIME):
            make_room(directory, made.chosen[at : at + AT_A_TIME], time.time_ns() // 1_000_000, count)


def _ask_first(made: PrunePlan) -> None:
    unread = sum(not each.is_read for each in made.chosen)
    also = f" No report has read {unread:,} of them." if unread else ""
    question = f"Delete {len(made.chosen):,} of {made.segments:,} segments, {made.chosen_bytes:,} bytes?{also}"
    confirm_or_exit(question, "nothing was deleted")


def _document(made: PrunePlan, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "segments": made.segments,
        "bytes": made.bytes,
        "pruned": [each.name for each in made.chosen],
        "pruned_bytes": made.chosen_bytes,
        "pruned_unread": [each.name for each in made.chosen if not each.is_read],
        "kept": [{"segment": each.name, "bytes": each.bytes, "why": each.kept} for each in made.kept],
    }


WHY = {
    "unread": "no report has read it: make one first (twinbus pipeline report), or say --unread",
    "written": "a process still writes to it",
    "without locks": "its file system has no file locks: nobody can tell whether a process still writes to it",
}


def _text(directory: str, made: PrunePlan, *, dry_run: bool) -> str:
    reasons = WHY | {"linked": f"a link leads to it, out of {directory}: nothing is deleted there"}
    lines = [f"{each.name}: stays: {reasons[each.kept]}" for each in made.kept[:SHOWN_MAX] if each.kept]
    lines += [f"and {len(made.kept) - SHOWN_MAX:,} more"] if len(made.kept) > SHOWN_MAX else []
    lines += [f"{each.name}: {each.bytes:,} bytes" for each in made.chosen] if dry_run else []
    verb = "would be deleted" if dry_run else "were deleted"
    total = f"{len(made.chosen):,} of {made.segments:,} segments {verb}, {made.chosen_bytes:,} of {made.bytes:,} bytes"
    return "\n".join([*lines, total])
