"""Tests of the SDK that do not pass here, each with its reason."""

from __future__ import annotations

NOT_APPLICABLE: dict[str, str] = {
    "test_next_available_session_timeout_value": (
        "the released SDK gives up by itself when the time of `receive_messages` is over; the test waits for the server"
    ),
    "test_queue_operation_negative": "replaces a method of the SDK by one that lacks an argument of the released one",
}
"""Of another version than the released SDK."""

FAILS: dict[str, str] = {
    "test_message_property": "the client's: it cannot decode the decimal that it encoded itself, without any server",
    "test_sb_client_bad_entity": (
        "ours, on purpose: for a queue that does not exist the service refuses the token, which this client takes for "
        "a wrong login and tries again for 15 s; here the link is refused at once, as `MessagingEntityNotFoundError`"
    ),
}
"""Our server, or the limits of a run on one machine."""


FAILS_THROUGH_PROXY: dict[str, str] = {
    "test_sb_client_incorrect_queue_conn_str": (
        "uses a key of a queue: such keys open the queue at the primary, but the proxy has keys of its own only"
    ),
    "test_queue_receive_handler_with_autolockrenew_many_msgs": (
        "the client's: its threads share a socket, and one that reads holds it for up to 0.2 s; with a hop more, 300 "
        "renewals took 12 s, and it begins 10 s before the locks end; with `socket_timeout=0.02` they took 2 s"
    ),
}
"""Through a proxy, and not without one."""
