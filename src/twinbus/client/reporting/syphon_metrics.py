"""The numbers of a syphon and of looks into the backlog: of a paired client, and of `twinbus syphon` as a program.

Looks show what lies in the backlog, whoever has put it there. A process with a syphon looks every 30 s while anything
waits or is failed over. A client without one looks once an hour, as far as its credential allows that; so
`looked_timestamp` says how old these numbers are.
"""

from __future__ import annotations

from collections.abc import Iterator

from twinbus.client.reporting.metric_types import Metric, Sample, of_pair, of_secondary, of_syphon, timestamp
from twinbus.client.reporting.status import Status

STATES = ("running", "paused", "paused after the canary", "stopped")


def _states(status: Status) -> Iterator[Sample]:
    if status.syphon is not None:
        for state in STATES:
            yield (state,), float(status.syphon.state == state)


SYPHON_METRICS: tuple[Metric, ...] = (
    Metric(
        "twinbus_pair_syphon_state",
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
    ),
    of_syphon(
        "twinbus_pair_syphon_oldest_age_seconds",
        "How long the oldest message the syphon knows of has been in the backlog; missing if it knows none.",
        lambda syphon: syphon.oldest_age_s,
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
    ),
    of_syphon(
        "twinbus_pair_syphon_left_messages",
        "About how many messages are still to come home; missing until it is counted.",
        lambda syphon: syphon.left,
    ),
    of_syphon(
        "twinbus_pair_syphon_left_seconds",
        "How long that takes at the present rate; missing if unknown.",
        lambda syphon: syphon.seconds_left,
    ),
)

BACKLOG_METRICS: tuple[Metric, ...] = (
    of_pair(
        "twinbus_pair_backlog_looked_timestamp_seconds",
        "When this process last looked into the backlog, in seconds since 1970: the other numbers of the backlog are "
        "as of then. Missing if it has not.",
        lambda status: timestamp(status.secondary_status.looked_at),
    ),
    of_secondary(
        "twinbus_pair_backlog_messages",
        "Messages that wait in the backlog of this primary, of all clients, exactly; missing if that is unknown.",
        lambda secondary: secondary.waiting_messages,
    ),
    of_secondary(
        "twinbus_pair_backlog_messages_at_least",
        "Those of them that were seen: the same number, or a lower bound where only some were counted; missing if no "
        "queue could be read.",
        lambda secondary: secondary.waiting_at_least,
    ),
    of_secondary(
        "twinbus_pair_backlog_queues_unread",
        "Backlog queues that could not be looked into: what lies there is in none of these numbers.",
        lambda secondary: secondary.unread_queues,
    ),
    of_secondary(
        "twinbus_pair_backlog_oldest_age_seconds",
        "Age of the oldest message that was seen in the backlog; missing if none was.",
        lambda secondary: secondary.oldest_age_s,
    ),
)
