"""Messages in quarantine, chosen like any others, sent home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinbus.messages.browsed_message import browsed
from twinbus.messages.changes import MessageChanges
from twinbus.messages.choice import MessageChoice
from twinbus.syphon.quarantine import Quarantine, QuarantinedMessage

if TYPE_CHECKING:
    from twinbus.transport.dial import Dial


async def redrive_chosen(
    primary: Dial, secondary: Dial, primary_name: str, index: int, choice: MessageChoice, attempt_s: float
) -> MessageChanges:
    """Send the chosen messages of one backlog queue's quarantine home. Raises `ConnectionFailed`."""

    def is_wanted(found: QuarantinedMessage) -> bool:
        return choice.matches(browsed(found.encoded))

    async with Quarantine(secondary, primary_name, index + 1, queues=[index], attempt_s=attempt_s) as quarantine:
        result = await quarantine.redrive(primary, is_wanted)
    kept = {sequence: why for (_, sequence), why in result.kept.items()}
    return MessageChanges([sequence for _, sequence in result.done], kept)
