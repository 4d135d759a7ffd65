"""What keeps a run from saying that all is home: mistyped names, messages in quarantine, queues nobody can see."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twinbus.cli.homecoming_texts import extra_text, outside_text, quarantine_text
from twinbus.errors import TwinbusError

if TYPE_CHECKING:
    from twinbus.cli.ends import Ends
    from twinbus.syphon import Syphon, SyphonOptions
    from twinbus.syphon.entity_check import EntityCheck


async def check_names(ends: Ends, options: SyphonOptions, queues: Sequence[int] | None) -> EntityCheck | None:
    """Whether the entities that were named exist; None: all do, or nobody could look into the backlog."""
    from twinbus.syphon.entity_check import check_entities
    from twinbus.syphon.linked import LineFailed

    if not options.entities or queues is None:
        return None
    try:
        return await check_entities(
            ends.primary,
            ends.secondary,
            ends.names.primary,
            queues,
            options.entities,
            attempt_s=options.attempt_s,
        )
    except LineFailed:
        return None


def unknown_text(check: EntityCheck, primary: str) -> str | None:
    """That names are wrong; None: none is known to be."""
    if not check.unknown:
        return None
    named = ", ".join(check.unknown)
    return (
        f"no entity {named}: {primary} has none of that name, and no message in the backlog is for it; check --entity"
    )


def untold_texts(check: EntityCheck | None, primary: str, met: Sequence[str]) -> list[str]:
    """Names of which nobody could say whether they are right; `met` are those that messages were for."""
    known = {path.casefold() for path in met}
    untold = {} if check is None else check.untold
    return [
        f"whether {primary} has an entity {name} cannot be told, and no message was for it: {why}"
        for name, why in untold.items()
        if name.casefold() not in known
    ]


def raise_if_unknown(check: EntityCheck | None, primary: str) -> None:
    text = None if check is None else unknown_text(check, primary)
    if text is not None:
        raise TwinbusError(text)


async def not_home(ends: Ends, options: SyphonOptions, syphon: Syphon) -> tuple[int | None, int | None, str | None]:
    """How many messages that were wanted are in quarantine, and how many in the backlog are for entities that were not
    named; None: that cannot be told, and why."""
    from twinbus.syphon.line import Line
    from twinbus.syphon.linked import LineFailed
    from twinbus.syphon.look import count_others
    from twinbus.syphon.pace import Pace
    from twinbus.syphon.quarantine import count_quarantined

    line = Line(ends.secondary, attempt_s=options.attempt_s, clock=lambda: int(time.monotonic() * 1000))
    pace, queues = Pace(options, 0), syphon.queues.indexes
    try:
        await line.open()
        try:
            quarantined = await count_quarantined(line, ends.names.primary, queues, pace.wants)
            is_all = options.entities is None
            return quarantined, 0 if is_all else await count_others(line, ends.names.primary, queues, pace.allows), None
        finally:
            await line.close()
    except LineFailed as error:
        return None, None, f"whether messages are in quarantine cannot be told: {error.failure}"


def notes_of(quarantined: int | None, outside: int | None, extra: Sequence[int], doubts: Sequence[str]) -> list[str]:
    """Lines under the result of a run."""
    return [
        *([quarantine_text(quarantined)] if quarantined else []),
        *([outside_text(outside)] if outside else []),
        *([extra_text(extra)] if extra else []),
        *doubts,
    ]
