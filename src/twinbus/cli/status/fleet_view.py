"""The fleet in `twinbus status`: who reports on the board, and what that means for the verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from twinbus.cli.output import table
from twinbus.plain_text import harmless, on_one_line
from twinbus.units import rough_duration

if TYPE_CHECKING:
    from twinbus.board.fleet import Fleet, FleetProcess
    from twinbus.client.inspection.health import Check, Judgement
    from twinbus.client.namespace import Namespace

PROCESSES_SHOWN = 20
"""On a screen, those in trouble first; `--all` and JSON have all."""
TROUBLES_SHOWN = 3


class FleetView:
    """Looks at the board again and again, on one connection. Use it in a `with` block."""

    def __init__(self, secondary: Namespace, primary_name: str | None, attempt_s: float, *, shows_all: bool) -> None:
        """Without a name of the primary there is no board to look for."""
        self._secondary, self._primary_name, self._attempt_s = secondary, primary_name, attempt_s
        self._shows_all = shows_all
        self._runner = asyncio.Runner()
        self.fleet: Fleet | None = None

    def __enter__(self) -> FleetView:
        from twinbus.board.reader import BoardReader
        from twinbus.errors import OptionsError

        self._reader: BoardReader | None = None
        if self._primary_name is not None:
            try:
                dial = self._secondary.dial(self._attempt_s)
            except OptionsError:  # it is reached by the SDK only, and so is the backlog
                return self
            self._reader = BoardReader(dial, self._primary_name, attempt_s=self._attempt_s)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._reader is not None:
            self._runner.run(self._reader.close())
        self._runner.close()

    def look(self) -> None:
        """What is known now; never raises for what lies on the board."""
        if self._reader is not None:
            self.fleet = self._runner.run(self._reader.look())

    def judge(self, judgement: Judgement, checks: frozenset[Check]) -> Judgement:
        from twinbus.client.inspection.fleet_health import with_fleet

        return judgement if self.fleet is None else with_fleet(judgement, self.fleet, checks)

    def as_dict(self) -> dict[str, Any] | None:
        """None: there is no board."""
        fleet = self.fleet
        return None if fleet is None or fleet.has_board is False else fleet.as_dict()

    def text(self) -> str:
        """A table; empty if there is no board."""
        fleet = self.fleet
        if fleet is None or fleet.has_board is False:
            return ""
        return harmless("\n".join(_lines(fleet, len(fleet.processes) if self._shows_all else PROCESSES_SHOWN)), "\n")


def _lines(fleet: Fleet, most: int) -> Iterator[str]:
    if fleet.processes:
        shown = fleet.processes[:most]
        heads = ("process", "kind", "reports", "says", "for", "held", "in spool", "syphon", "why")
        yield table([heads, *map(_row, shown)])
        if len(fleet.processes) > most:
            yield f"and {len(fleet.processes) - most:,} more processes, none in more trouble (--all shows them)"
    counts = f"{len(fleet.reporting):,} report, {len(fleet.silent):,} silent"
    yield f"fleet      {counts}" + (f"; {fleet.problem}" if fleet.problem else "")
    if fleet.unreadable:
        yield f"{fleet.unreadable:,} messages on the board could not be read"


def _row(process: FleetProcess) -> tuple[object, ...]:
    report = process.report
    syphon = report.syphon
    state, for_s, why = _worst(process)
    return (
        on_one_line(f"{report.host} {report.process}", 60),
        report.kind.value,
        process.word.value,
        state,
        "" if for_s is None else rough_duration(for_s + process.age_s),
        f"{report.held:,}",
        "-" if report.spooled is None else f"{report.spooled:,}",
        "-" if syphon is None else on_one_line(f"{syphon.state}, {syphon.rate:,.0f}/s", 40),
        on_one_line(why, 120),
    )


def _worst(process: FleetProcess) -> tuple[str, float | None, str]:
    """What a process says, since when, and why."""
    report = process.report
    if report.phase.value != "paired":
        return report.phase.value, None, report.reason
    troubles = [each for each in report.entities if each.state.value != "healthy" or each.cannot]
    if troubles:
        more = sum(count for state, count in report.left_out.items() if state.value != "healthy")
        names = [_named(each.entity, each.state.value, each.cannot) for each in troubles[:TROUBLES_SHOWN]]
        rest = len(troubles) - len(names) + more
        lengths = [each.for_s for each in troubles if each.for_s is not None]
        return (
            on_one_line("; ".join(names) + (f" and {rest:,} more" if rest else ""), 120),
            max(lengths, default=None),
            troubles[0].reason,
        )
    if report.secondary_down_for_s is not None:
        return "no secondary", report.secondary_down_for_s, ""
    return "healthy" if report.is_calm else "waiting", None, ""


def _named(entity: str, state: str, cannot: tuple[str, ...]) -> str:
    words = [*([state] if state != "healthy" else []), *[f"cannot {each}" for each in cannot]]
    return f"{entity}: {', '.join(words)}"
