"""What is said of a way home: what would go where, and how it went."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from twinbus.cli.homecoming import Ending
from twinbus.plain_text import on_one_line

if TYPE_CHECKING:
    from twinbus.syphon import Progress
    from twinbus.syphon.survey import Share, Survey


def refused_text(refused: int, expired: int) -> str:
    """Which messages of this run went to the quarantine."""
    counts = f"{refused:,} can never be stored and {expired:,} are past their time to live"
    return f"{counts}: see twinbus syphon quarantine list"


def quarantine_text(count: int) -> str:
    """What to do with messages that did not come home and will not by themselves."""
    from twinbus.syphon.quarantine import COUNTED_MAX

    many = f"{count:,} or more messages are" if count >= COUNTED_MAX else f"{count:,} message{_s(count)}"
    return f"{many} in quarantine: twinbus syphon quarantine list shows, redrive sends home, discard throws away"


def outside_text(count: int) -> str:
    """Messages that nobody was told to move."""
    from twinbus.syphon.look import OTHERS_MAX

    many = f"{count:,} or more messages stay" if count >= OTHERS_MAX else f"{count:,} message{_stay(count)}"
    return f"{many} in the backlog, for entities that were not named: twinbus syphon --dry-run shows which"


def _stay(count: int) -> str:
    return " stays" if count == 1 else "s stay"


def _s(count: int) -> str:
    return " is" if count == 1 else "s are"


def extra_text(indexes: Sequence[int]) -> str:
    """Messages lay where nobody expected them."""
    named = ", ".join(map(str, indexes[:5])) + (f" and {len(indexes) - 5} more" if len(indexes) > 5 else "")
    return f"messages were in backlog queues beyond --queues: {named}; a sender elsewhere has more of them than that"


def result_text(ending: Ending, progress: Progress, notes: Sequence[str] = ()) -> str:
    """How it went; `notes` say what else there is to know."""
    from twinbus.cli.commands.status import size
    from twinbus.client.duration import roughly

    said = {
        Ending.EMPTY: "the backlog is empty",
        Ending.CHOSEN: "nothing of what was chosen is left in the backlog",
        Ending.UNSURE: "all that can be seen of the backlog",
        Ending.CANARY: "stopped after the first ones; the others stay in the backlog until twinbus syphon runs again",
        Ending.STOPPED: "stopped",
        Ending.INTERRUPTED: "interrupted; what is left stays in the backlog",
        Ending.ORDER_UNKNOWN: "stopped, because the order of the next ones is not known",
    }[ending]
    pace = f", {progress.moved / progress.seconds:,.0f}/s" if progress.moved and progress.seconds > 0 else ""
    moved = f"{progress.moved:,} messages ({size(progress.moved_bytes)}) are home"
    lines = [f"{moved}, in {roughly(progress.seconds)}{pace}: {said}"]
    if progress.refused or progress.expired:
        lines.append(refused_text(progress.refused, progress.expired))
    if progress.repeated or progress.in_doubt:
        lines.append(f"{progress.repeated + progress.in_doubt:,} may be at home twice, with the same id")
    return "\n".join([*lines, *notes])


def survey_text(found: Survey, now: datetime) -> str:
    """What would go where, as a table."""
    from twinbus.cli import draw

    others = {
        "(refused: malformed)": found.malformed,
        "(expired)": found.expired,
        "(not chosen)": found.unwanted,
        "(cannot be moved)": found.kept,
        "(set aside by others)": found.set_aside,
    }
    shares = dict(sorted(found.destinations.items())) | {name: each for name, each in others.items() if each.messages}
    rows = [(name, each.messages, *_size_and_ages(each, now)) for name, each in shares.items()]
    nothing = "the backlog is empty" if found.doubt is None else "nothing lies in what can be seen of the backlog"
    table = draw.table([("destination", "messages", "size", "oldest", "newest"), *rows]) if rows else nothing
    order = [] if found.order_problem is None else [on_one_line(f"order cannot be promised: {found.order_problem}")]
    return "\n\n".join([table, *order, *(["\n".join(map(on_one_line, found.doubts))] if found.doubts else [])])


def _size_and_ages(share: Share, now: datetime) -> tuple[str, str, str]:
    from twinbus.cli.commands.status import size
    from twinbus.client.duration import roughly

    now_ms = now.timestamp() * 1000
    ages = [
        "?" if at_ms is None else roughly(max(0.0, now_ms - at_ms) / 1000)
        for at_ms in (share.oldest_ms, share.newest_ms)
    ]
    return size(share.size), ages[0], ages[1]
