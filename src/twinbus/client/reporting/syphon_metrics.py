"""The numbers of a syphon: of the one in a paired client, and of `twinbus syphon` as a program."""

from __future__ import annotations

from collections.abc import Iterator

from twinbus.client.reporting.metric_types import Metric, MetricKind, Sample, of_syphon
from twinbus.client.reporting.status import Status

STATES = ("running", "paused", "paused after the canary", "stopped")


def _states(status: Status) -> Iterator[Sample]:
    if status.syphon is not None:
        for state in STATES:
            yield (state,), float(status.syphon.state == state)


SYPHON_METRICS: tuple[Metric, ...] = (
    Metric(
        "twinbus_pair_syphon_state",
        MetricKind.GAUGE,
        "1 for the state the syphon is in, 0 for the others; missing where this process runs none, as all of these.",
        ("state",),
        _states,
    ),
    of_syphon(
        "twinbus_pair_syphon_messages_total",
        "Messages that this process has brought home.",
        lambda syphon: syphon.moved,
    ),
    of_syphon(
        "twinbus_pair_syphon_moved_bytes_total",
        "Bytes of those messages.",
        lambda syphon: syphon.moved_bytes,
    ),
    of_syphon(
        "twinbus_pair_syphon_quarantined_total",
        "Messages that can never come home.",
        lambda syphon: syphon.quarantined,
    ),
    of_syphon(
        "twinbus_pair_syphon_expired_total",
        "Messages whose time to live ended in the backlog.",
        lambda syphon: syphon.expired,
    ),
    of_syphon(
        "twinbus_pair_syphon_repeated_total",
        "Messages that come home once more, with the same id: sent without an answer, or too late for their lock.",
        lambda syphon: syphon.repeated + syphon.in_doubt,
    ),
    of_syphon(
        "twinbus_pair_syphon_destinations_down",
        "Entities to which nothing can be brought home at the moment.",
        lambda syphon: len(syphon.destinations_down),
        MetricKind.GAUGE,
    ),
    of_syphon(
        "twinbus_pair_syphon_oldest_age_seconds",
        "How long the oldest message the syphon knows of has been in the backlog; missing if it knows none.",
        lambda syphon: syphon.oldest_age_s,
        MetricKind.GAUGE,
    ),
    of_syphon(
        "twinbus_pair_syphon_released_total",
        "Messages that were given back to the backlog, because their entity was down or the syphon paused.",
        lambda syphon: syphon.released,
    ),
    of_syphon(
        "twinbus_pair_syphon_outside_total",
        "Messages for entities that the syphon was not told to bring messages to; they stay in the backlog.",
        lambda syphon: syphon.outside,
    ),
    of_syphon(
        "twinbus_pair_syphon_held_messages",
        "Messages that the syphon has under lock.",
        lambda syphon: syphon.held,
        MetricKind.GAUGE,
    ),
    of_syphon(
        "twinbus_pair_syphon_left_messages",
        "About how many messages are still to come home; missing until it is counted.",
        lambda syphon: syphon.left,
        MetricKind.GAUGE,
    ),
    of_syphon(
        "twinbus_pair_syphon_left_seconds",
        "How long that takes at the present rate; missing if unknown.",
        lambda syphon: syphon.seconds_left,
        MetricKind.GAUGE,
    ),
)
