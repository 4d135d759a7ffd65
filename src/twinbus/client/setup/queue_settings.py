"""Settings of backlog queues that somebody else has made, and which of them can cost messages or sends (P2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from twinbus.units import rough_duration

DAY_S = 86_400.0
LONG_S = 14 * DAY_S
"""A backlog may have to wait so long, over holidays and a syphon that nobody started."""
FOR_EVER_S = 10_000 * DAY_S
SIZE_MB = 5_120
DELIVERIES_MIN = 1_000
"""A syphon that is killed again and again, or whose locks end, counts as failed deliveries."""


class BacklogQueueSettings(NamedTuple):
    """As a listing tells them. The defaults are those of a queue that costs nothing."""

    requires_session: bool = False
    time_to_live_s: float = FOR_EVER_S
    max_delivery_count: int = 2_147_483_647
    max_size_mb: int = SIZE_MB
    forwards_to: str = ""
    forwards_dead_letters_to: str = ""
    dead_letters_expired: bool = True
    auto_delete_s: float = FOR_EVER_S
    drops_duplicates: bool = False
    status: str = "Active"


def settings_of(queue: Any) -> BacklogQueueSettings:
    """What the administration client says of a queue; what it does not say is taken for harmless."""

    def seconds(name: str) -> float:
        value = getattr(queue, name, None)
        return FOR_EVER_S if value is None else float(value.total_seconds())

    def known(name: str, otherwise: Any) -> Any:
        value = getattr(queue, name, None)
        return otherwise if value is None else value

    harmless = BacklogQueueSettings()
    return BacklogQueueSettings(
        requires_session=bool(known("requires_session", False)),
        time_to_live_s=seconds("default_message_time_to_live"),
        max_delivery_count=int(known("max_delivery_count", harmless.max_delivery_count)),
        max_size_mb=int(known("max_size_in_megabytes", harmless.max_size_mb)),
        forwards_to=str(known("forward_to", "")),
        forwards_dead_letters_to=str(known("forward_dead_lettered_messages_to", "")),
        dead_letters_expired=bool(known("dead_lettering_on_message_expiration", True)),
        auto_delete_s=seconds("auto_delete_on_idle"),
        drops_duplicates=bool(known("requires_duplicate_detection", False)),
        status=str(getattr(queue.status, "value", queue.status) if known("status", None) else harmless.status),
    )


def risks(settings: BacklogQueueSettings) -> Iterator[tuple[str, str]]:
    """Each setting that can cost messages or sends, with what it costs, and what would be right."""
    if settings.requires_session:
        yield "sessions are required", "it takes no messages without one: make it anew without sessions"
    if settings.time_to_live_s < LONG_S or (not settings.dead_letters_expired and settings.time_to_live_s < FOR_EVER_S):
        end = "are dead-lettered" if settings.dead_letters_expired else "are deleted"
        yield (
            f"messages live for {rough_duration(settings.time_to_live_s)}",
            f"those that wait longer {end}: set the time to live to the maximum, and dead-lettering on expiration on",
        )
    if settings.max_delivery_count < DELIVERIES_MIN:
        yield (
            f"the delivery count is limited to {settings.max_delivery_count}",
            "messages that a syphon had to give back too often are dead-lettered: set it to 2147483647",
        )
    if settings.max_size_mb < SIZE_MB:
        yield (
            f"the size is {settings.max_size_mb} MB",
            f"it is full too soon, and refuses sends: set it to {SIZE_MB} MB",
        )
    if settings.forwards_to:
        yield (
            f"it forwards to {settings.forwards_to}",
            "messages leave the backlog and never come home: remove the forwarding",
        )
    if settings.forwards_dead_letters_to:
        yield (
            f"it forwards dead letters to {settings.forwards_dead_letters_to}",
            "what cannot come home is not found in quarantine: remove the forwarding",
        )
    if settings.auto_delete_s < LONG_S:
        yield (
            f"it is deleted after {rough_duration(settings.auto_delete_s)} of idleness",
            "with all that waits in it: set auto-delete on idle to the maximum",
        )
    if settings.drops_duplicates:
        yield (
            "duplicate detection is on",
            "messages of two entities with the same id are taken for one: make it anew without duplicate detection",
        )
    if settings.status == "ReceiveDisabled":
        yield "receiving is disabled", "nothing can be brought home: set the status to Active"


def shut_by(settings: BacklogQueueSettings) -> str | None:
    """Why no syphon can empty such a queue, and what would be right; None: one can."""
    if settings.requires_session:
        return "it demands sessions: make it anew without them"
    if settings.forwards_to:
        return f"it forwards to {settings.forwards_to}, so messages never come home: remove the forwarding"
    if settings.status in ("ReceiveDisabled", "Disabled"):
        return f"it has the status {settings.status}: set it to Active"
    return None


def by_risk(found: Mapping[int, BacklogQueueSettings]) -> dict[tuple[str, str], list[int]]:
    """The risks of these queues, each with the queues that have it."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, settings in sorted(found.items()):
        for risk in risks(settings):
            groups.setdefault(risk, []).append(index)
    return groups
