"""What `twinbus pipeline report` and `watch` share: which messages, the verdict table, counts of the service."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from twinbus.cli.arguments import namespaces
from twinbus.cli.arguments.option_groups import ArgumentGroup, option
from twinbus.cli.output import note
from twinbus.errors import OptionsError
from twinbus.units import parse_past_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinbus.spark.jobs.findings import Findings
    from twinbus.spark.jobs.verdict_files import VerdictFiles
    from twinbus.spark.report.service_counts import EntityCounts, ServicePoint
    from twinbus.spark.transforms.selection import LedgerSelection

ADMIN_S = 15.0

LedgerDirectory = Annotated[
    str, typer.Option("--ledger", metavar="DIR", help="The ledger that is read: its folder, or URL.")
]


@dataclass(frozen=True, kw_only=True)
class LedgerSelectionArguments(ArgumentGroup):
    panel: ClassVar[str] = "Which messages"
    since: str | None = option(
        None, "TIME", "Only messages accepted since then: 2h, or 2031-03-09T14:05Z. Without a zone it is UTC."
    )
    until: str | None = option(None, "TIME", "Only messages accepted before then. What became of them later counts.")
    entity: list[str] | None = option(
        None, "NAME", "A queue or topic: only messages to it; * and ? stand for any characters. Repeat for more."
    )

    def selection(self, now: datetime) -> LedgerSelection:
        """Raises `OptionsError`. Durations count back from now."""
        from twinbus.spark.transforms.selection import LedgerSelection

        since = None if self.since is None else parse_past_time(self.since, now, "--since")
        until = None if self.until is None else parse_past_time(self.until, now, "--until")
        if since is not None and until is not None and since >= until:
            raise OptionsError(f"--since must be before --until, got {self.since} and {self.until}")
        names = tuple(name.strip("/ ") for name in self.entity or ())
        if not all(names):
            raise OptionsError("the name of an entity must not be empty")
        return LedgerSelection(_ms(since), _ms(until), names)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)


@dataclass(frozen=True, kw_only=True)
class VerdictArguments(ArgumentGroup):
    panel: ClassVar[str] = "Verdict table"
    verdicts: str | None = option(None, "URL", "Write the verdict of every message there, a folder of Parquet files.")
    overwrite: bool = option(False, None, "Replace the table that is there.", "--overwrite")

    def files(self) -> VerdictFiles | None:
        """Raises `OptionsError` if the folder cannot be used: before the work, not after it."""
        if self.verdicts is None:
            if self.overwrite:
                raise OptionsError("--overwrite has no effect without --verdicts")
            return None
        if not self.verdicts.strip():
            raise OptionsError("--verdicts must not be empty: it is the folder or URL of the table, e.g. ./verdicts")
        from twinbus.spark.jobs.verdict_files import VerdictFiles

        files = VerdictFiles(self.verdicts, self.overwrite)
        files.check()
        return files


@dataclass(frozen=True, kw_only=True)
class CountArguments(ArgumentGroup):
    panel: ClassVar[str] = "Counts of the service"
    counts: list[Path] | None = option(
        None, "FILE", "Metrics that Azure Monitor has exported, JSON or CSV, to compare with. Repeat for more."
    )
    primary: str | None = option(
        None, "STRING", "Connection string of the primary: say what its entities have now, by their runtime properties."
    )

    def points(self) -> list[ServicePoint]:
        """Raises `OptionsError`."""
        if not self.counts:
            return []
        from twinbus.spark.report.service_counts import read_points

        return read_points(self.counts)

    def add_runtime(self, found: Findings) -> Findings:
        """The same findings, with what entities have now. If the primary does not answer, a line says so."""
        if self.primary is None:
            return found
        from twinbus.spark.report.service_counts import compare_runtime
        from twinbus.spark.transforms.verdict_names import STORED, WAITING

        try:
            there = [each for each in self._entities() if found.selection.has_entity(each.entity)]
        except OptionsError:
            raise
        except Exception as error:  # of any type that the SDK and its transport have
            from twinbus.client.setup.administration import admin_failure

            note(f"runtime properties of the primary cannot be read: {admin_failure(error)}")
            return found
        away = found.reconciliation.away
        stored = {
            entity: counts.get(STORED, 0) + counts.get(WAITING, 0) - (away[entity].messages if entity in away else 0)
            for entity, counts in found.reconciliation.entities.items()
        }
        return replace(found, counts=[*found.counts, *compare_runtime(there, stored)])

    def _entities(self) -> Iterator[EntityCounts]:
        from twinbus.client.sync.provisioner import every_page
        from twinbus.pairing.backlog.backlog_queues import is_backlog_path
        from twinbus.spark.report.service_counts import EntityCounts

        with namespaces.one("primary", self.primary, None).admin_client(ADMIN_S) as admin:
            for queues in every_page(ADMIN_S, admin.list_queues_runtime_properties()):
                for each in queues:
                    if not is_backlog_path(each.name):
                        yield EntityCounts(
                            each.name.lower(),
                            each.active_message_count or 0,
                            each.dead_letter_message_count or 0,
                            each.scheduled_message_count or 0,
                            (each.transfer_message_count or 0) + (each.transfer_dead_letter_message_count or 0),
                        )
            for topics in every_page(ADMIN_S, admin.list_topics_runtime_properties()):
                for topic in topics:
                    listed = every_page(ADMIN_S, admin.list_subscriptions_runtime_properties(topic.name))
                    below = [each for page in listed for each in page]
                    yield EntityCounts(
                        topic.name.lower(),
                        sum(each.active_message_count or 0 for each in below),
                        sum(each.dead_letter_message_count or 0 for each in below),
                        topic.scheduled_message_count or 0,
                        sum(
                            (each.transfer_message_count or 0) + (each.transfer_dead_letter_message_count or 0)
                            for each in below
                        ),
                    )
