"""What one process says of itself on the board: a value, bounded in size, without contents of messages and secrets.

Times are lengths (`for_s`: how long it is so), because clocks of hosts differ. Readers count from the moment at which
the secondary stored the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from twinbus.errors import DecodeError
from twinbus.plain_text import on_one_line, without_keys

FORMAT = 1
CONTENT_TYPE = "application/vnd.twinbus-board+json"
REPORT_BYTES_MAX = 32 * 1024
"""Of the encoded report. Readers pass over larger ones."""
ENTITIES_BYTES_MAX = 24 * 1024
"""Of that, what is said of entities."""
NAME_MAX, REASON_MAX = 260, 200
DESTINATIONS_MAX = 20

Name = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
Instance = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Reason = Annotated[str, msgspec.Meta(max_length=REASON_MAX + 3)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
Length = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class ProcessKind(StrEnum):
    CLIENT = "client"
    PROXY = "proxy"
    SYPHON = "syphon"


class ReportedState(StrEnum):
    """Of an entity, as in the status of a client."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed over"


class ProcessPhase(StrEnum):
    PAIRED = "paired"
    FAULTED = "faulted"
    CLOSED = "closed"


class EntityFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One entity of the primary, as one process finds it."""

    entity: Name
    state: ReportedState = ReportedState.HEALTHY
    for_s: Length | None = None
    """How long it has been in this state; None: it was never in another one."""
    reason: Reason = ""
    held: Count = 0
    """Sends that are held."""
    ping_in_s: Length | None = None
    """How long until it is pinged next; None: no ping is due."""
    cannot: tuple[Annotated[str, msgspec.Meta(max_length=20)], ...] = ()
    """What else does not work, as far as this process has tried: receive, manage."""


class SyphonFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The syphon of a process."""

    state: Annotated[str, msgspec.Meta(max_length=40)] = "running"
    moved: Count = 0
    rate: Length = 0.0
    """Messages a second, lately."""
    left: Count | None = None
    seconds_left: Length | None = None
    destinations_down: Annotated[tuple[Name, ...], msgspec.Meta(max_length=DESTINATIONS_MAX)] = ()


class ProcessReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that a process says."""

    format: int = FORMAT
    instance: Instance
    """Chosen by chance when the process began: a process that is started again is another instance."""
    number: Count
    """Counts the reports of an instance: of two, the higher one holds."""
    host: Name
    process: Count
    """Its number on that host."""
    kind: ProcessKind
    there_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    """How late it was at the secondary at least, in ms since 1970, as its host knew; in signed reports only."""
    every_s: Annotated[float, msgspec.Meta(gt=0, le=3600)]
    """The next report comes within this time, unless the process ends."""
    phase: ProcessPhase = ProcessPhase.PAIRED
    reason: Reason = ""
    """Why it is faulted."""
    entities: tuple[EntityFinding, ...] = ()
    """Those in trouble first."""
    left_out: Mapping[ReportedState, Count] = {}
    """How many more entities there are, by state: a report has a largest size."""
    held: Count = 0
    """Sends held, of all entities."""
    spooled: Count | None = None
    """Messages in the spool; None: it has none."""
    sent_to_backlog: Count = 0
    """Messages that it has put into the backlog since that was last seen empty."""
    secondary_down_for_s: Length | None = None
    """How long sends have found nobody at the secondary; None: it can be reached."""
    syphon: SyphonFinding | None = None

    @property
    def is_calm(self) -> bool:
        """Whether nothing is failed over, suspect, held, spooled or waiting, as far as this process knows.

        What it has once sent to the backlog does not count: whether that waits there is known by syphons and by looks.
        """
        return (
            self.phase is ProcessPhase.PAIRED
            and not self.held
            and not self.spooled
            and self.secondary_down_for_s is None
            and (self.syphon is None or not (self.syphon.left or self.syphon.destinations_down))
            and not any(count for state, count in self.left_out.items() if state is not ReportedState.HEALTHY)
            and all(each.state is ReportedState.HEALTHY and not each.cannot for each in self.entities)
        )

    @property
    def essence(self) -> tuple[object, ...]:
        """What a new report is due for when it changes: not numbers that change all the time."""
        syphon = self.syphon
        return (
            self.phase,
            frozenset((each.entity, each.state, each.cannot) for each in self.entities),
            tuple(sorted(self.left_out.items())),
            bool(self.held),
            bool(self.spooled),
            self.secondary_down_for_s is not None,
            None if syphon is None else (syphon.state, frozenset(syphon.destinations_down)),
        )


def said(text: str, length_max: int = REASON_MAX) -> str:
    """A text as a report may hold it: on one line, short, without keys."""
    return on_one_line(without_keys(text[: 8 * length_max]), length_max)


def listed(entities: Sequence[EntityFinding]) -> tuple[tuple[EntityFinding, ...], dict[ReportedState, int]]:
    """As many as fit into a report, those in trouble first, and how many are left out."""
    order = {ReportedState.FAILED_OVER: 0, ReportedState.SUSPECT: 1, ReportedState.HEALTHY: 3}
    by_trouble = sorted(entities, key=lambda each: (min(order[each.state], 2 if each.cannot else 3), each.entity))
    size = kept = 0
    for each in by_trouble:
        size += len(_ENCODER.encode(each)) + 1
        if size > ENTITIES_BYTES_MAX:
            break
        kept += 1
    left_out: dict[ReportedState, int] = {}
    for each in by_trouble[kept:]:
        left_out[each.state] = left_out.get(each.state, 0) + 1
    return tuple(by_trouble[:kept]), left_out


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(ProcessReport)


def encode_report(report: ProcessReport) -> bytes:
    """At most `REPORT_BYTES_MAX`, for what `listed` and `said` have made."""
    return _ENCODER.encode(report)


def decode_report(body: bytes) -> ProcessReport:
    """Raises `DecodeError`: anybody with Send may put anything on a board."""
    if len(body) > REPORT_BYTES_MAX:
        raise DecodeError(f"a report has at most {REPORT_BYTES_MAX} bytes, got {len(body)}")
    try:
        report = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise DecodeError(f"not a report: {said(str(error))}") from None
    if report.format != FORMAT:
        raise DecodeError(f"a report of format {report.format}")
    return report
