"""The numbers of a look into the backlog: what lies there, whoever has put it there, as of when somebody looked.

A process with a syphon looks every 30 s while anything waits or is failed over. A client without one looks once an
hour, as far as its credential allows that; so `looked_timestamp` says how old these numbers are.
"""

from __future__ import annotations

from twinbus.client.reporting.metric_types import Metric, of_moment, of_secondary

BACKLOG_METRICS: tuple[Metric, ...] = (
    of_moment(
        "twinbus_pair_backlog_looked_timestamp_seconds",
        "When this process last looked into the backlog, in seconds since 1970: the other numbers of the backlog are "
        "as of then. Missing if it has not.",
        lambda status: status.secondary_status.looked_at,
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
