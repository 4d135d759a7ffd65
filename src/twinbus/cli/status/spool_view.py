"""Spools of this machine in `twinbus status`: their folders, and what messages in them mean for the verdict."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.errors import StoreError

if TYPE_CHECKING:
    from twinbus.client.inspection.health import Check, Judgement
    from twinbus.spool.survey import FolderReport


class SpoolView:
    def __init__(self, folder: Path | None, primary_name: str | None) -> None:
        """The spool in `folder`; None: all that processes of this user have, or left, on this machine for this pair."""
        self._folder = folder
        self._primary_name = primary_name or ""
        self.folders: list[FolderReport] = []

    def look(self) -> None:
        """Raises `StoreError` if the given folder is not a spool, or is of another pair."""
        from twinbus.control.local_register import registered_spools
        from twinbus.spool.folder import SpoolDirectory
        from twinbus.spool.survey import FolderReport, survey

        self.folders = []
        for folder in registered_spools(self._primary_name) if self._folder is None else [self._folder]:
            try:
                self.folders += survey(SpoolDirectory(folder, self._primary_name))
            except (StoreError, OSError) as error:
                if folder == self._folder:
                    raise
                self.folders.append(FolderReport(folder=str(folder), process=None, problem=str(error)))

    def judge(self, judgement: Judgement, checks: frozenset[Check]) -> Judgement:
        """The verdict with what is in the spool: it waits as what is in the backlog does."""
        from twinbus.client.inspection.health import Check, Health

        if Check.BACKLOG not in checks:
            return judgement
        waiting = sum(each.messages for each in self.folders)
        aside = sum(each.quarantined for each in self.folders)
        reasons = [f"{waiting:,} messages wait in the spool"] if waiting else []
        reasons += [f"{aside:,} messages are in quarantine in the spool"] if aside else []
        unknown = [each.problem for each in self.folders if each.problem is not None]
        health = judgement.health
        if reasons and health in (Health.HEALTHY, Health.UNKNOWN):
            health = Health.WAITING
        elif unknown and health is Health.HEALTHY:
            health = Health.UNKNOWN
        said = [*([judgement.text] if judgement.reasons else []), *reasons]
        text = "; ".join(said or unknown) if reasons or (unknown and health is Health.UNKNOWN) else judgement.text
        return replace(
            judgement,
            health=health,
            text=text,
            reasons=(*judgement.reasons, *reasons),
            unknown=(*judgement.unknown, *unknown),
        )

    def as_dict(self) -> list[dict[str, Any]]:
        return [each.as_dict() for each in self.folders]

    def text(self) -> str:
        """A table; empty if nobody asked for a spool and there is none."""
        from twinbus.cli.output import table
        from twinbus.plain_text import on_one_line
        from twinbus.units import rough_duration, size_text

        if not self.folders:
            return "" if self._folder is None else f"spool {self._folder}: no process uses it, and nothing is in it"
        now_ms = time.time() * 1000
        rows = [
            (
                each.folder,
                "left behind" if each.process is None else f"process {each.process}",
                "?" if each.problem is not None else f"{each.messages:,}",
                size_text(None if each.problem is not None else each.size_bytes),
                "-" if each.oldest_ms is None else rough_duration(max(0.0, now_ms - each.oldest_ms) / 1000),
                "?" if each.problem is not None else f"{each.quarantined:,}",
                on_one_line(each.problem or ", ".join(f"{name} {count:,}" for name, count in each.entities.items())),
            )
            for each in self.folders
        ]
        return table([("spool", "used by", "messages", "size", "oldest", "quarantined", "for"), *rows])
