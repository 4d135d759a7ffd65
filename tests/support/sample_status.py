"""A pair in the middle of an outage: one entity failed over, one backlog queue lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twinbus.client.reporting.order_status import FenceStatus, OrderStatus
from twinbus.client.reporting.status import (
    BacklogQueueStatus,
    EntityState,
    EntityStatus,
    SecondaryStatus,
    SentToBacklog,
    Status,
    SyphonStatus,
)

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ORDERS = EntityStatus(
    entity="orders",
    state=EntityState.FAILED_OVER,
    since=NOW - timedelta(seconds=4_000),
    reason="unreachable:\nrefused",
    epoch=1,
    next_ping_at=NOW + timedelta(seconds=31),
    failovers=1,
    sent_to_primary=1_200,
    sent_to_backlog=340,
)
QUEUES = (
    BacklogQueueStatus(path="contoso/x-servicebus-transfer/0", sent=340),
    BacklogQueueStatus(
        path="contoso/x-servicebus-transfer/1",
        in_rotation=False,
        lost_until=NOW + timedelta(seconds=9),
        reason="quota exceeded",
    ),
)
SECONDARY = SecondaryStatus(
    checked_at=NOW - timedelta(minutes=3),
    warnings=("duplicate detection of orders is off",),
    looked_at=NOW - timedelta(minutes=2),
    waiting_messages=340,
    waiting_at_least=340,
    unread_queues=0,
    oldest_age_s=99.0,
    capacity_hours=1.5,
    syphon_seen=False,
)
STATUS = Status(
    at=NOW,
    primary="contoso",
    secondary="backup",
    entities=(ORDERS, EntityStatus(entity="invoices", sent_to_primary=7)),
    backlog_queues=QUEUES,
    secondary_status=SECONDARY,
    sent_to_backlog=SentToBacklog(
        messages=340, size_bytes=34_000, first_at=NOW - timedelta(minutes=5), last_at=NOW - timedelta(seconds=1)
    ),
    syphon=SyphonStatus(
        moved=12,
        moved_bytes=12_000,
        quarantined=1,
        left=340,
        seconds_left=17.0,
        oldest_age_s=99.0,
        destinations_down=("orders",),
    ),
    order=OrderStatus(
        fences=1,
        messages_left=3,
        largest=(FenceStatus(entity="orders", session_id="a", backlog_queue=QUEUES[0].path, messages_left=3),),
        by_entity=(("orders", 1, 3),),
    ),
)
