"""What a peer takes at once on a link of ours."""

from __future__ import annotations

from twinbus.amqp.sending_link import SendingLink

BATCH_LIMIT = "com.microsoft:max-message-batch-size"
_MIB = 1024 * 1024


def batch_limit(link: SendingLink) -> int:
    """The largest batch a link accepts; without a statement the same as the official clients assume."""
    largest = link.max_message_size or 0
    limit = (link.properties or {}).get(BATCH_LIMIT)
    if isinstance(limit, int) and limit > 0:
        return int(limit)
    return min(largest, _MIB) if largest else _MIB
