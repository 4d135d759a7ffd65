"""What is said of a way home: what would go where, and how it went."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from twinbus.cli.homecoming import Ending

if TYPE_CHECKING:
    from twinbus.syphon import Progress
    from twinbus.syphon.survey import Share, Survey


def result_text(ending: Ending, progress: Progress) -> str:
    from twinbus.cli.commands.status import size
    from twinbus.client.duration import roughly

    said = {
        Ending.EMPTY: "the backlog is empty",
        Ending.CANARY: "stopped after the first ones; the others stay in the backlog until twinbus syphon runs again",
        Ending.STOPPED: "stopped",
        Ending.INTERRUPTED: "interrupted; what is left stays in the backlog",
        Ending.ORDER_UNKNOWN: "stopped, because the order of the next ones is not known",
    }[ending]
    pace = f", {progress.moved / progress.seconds:,.0f}/s" if progress.moved and progress.seconds > 0 else ""
    moved = f"{progress.moved:,} messages ({size(progress.moved_bytes)}) are home"
    lines = [f"{moved}, in {roughly(progress.seconds)}{pace}: {said}"]
    if progress.refused or progress.expired:
        lines.append(
            f"{progress.refused:,} can never be stored and {progress.expired:,} are past their time to live: "
            "see twinbus syphon quarantine list"
        )
    if progress.repeated or progress.in_doubt:
        lines.append(f"{progress.repeated + progress.in_doubt:,} may be at home twice, with the same id")
    return "\n".join(lines)


def survey_text(found: Survey, now: datetime) -> str:
    """What would go where, as a table."""
    from twinbus.cli import draw

    others = {
        "(refused: malformed)": found.malformed,
        "(expired)": found.expired,
        "(not chosen)": found.unwanted,
        "(set aside by others)": found.set_aside,
    }
    shares = dict(sorted(found.destinations.items())) | {name: each for name, each in others.items() if each.messages}
    rows = [(name, each.messages, *_size_and_ages(each, now)) for name, each in shares.items()]
    if not rows:
        return "the backlog is empty"
    table = draw.table([("destination", "messages", "size", "oldest", "newest"), *rows])
    return table if found.order_problem is None else f"{table}\n\norder cannot be promised: {found.order_problem}"


def _size_and_ages(share: Share, now: datetime) -> tuple[str, str, str]:
    from twinbus.cli.commands.status import size
    from twinbus.client.duration import roughly

    now_ms = now.timestamp() * 1000
    ages = [
        "?" if at_ms is None else roughly(max(0.0, now_ms - at_ms) / 1000)
        for at_ms in (share.oldest_ms, share.newest_ms)
    ]
    return size(share.size), ages[0], ages[1]
