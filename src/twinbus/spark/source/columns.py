"""The columns of a message, named as the official Python client names its fields.

What the service says of a message (its number, when it came, how often it was delivered) can be read; on the way out
such columns are passed over, so that what was read can be written elsewhere as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

PROPERTIES_TYPE = "map<string,struct<type:string,value:string>>"

COLUMNS: Final[Mapping[str, str]] = {
    "entity": "string",
    "sequence_number": "bigint",
    "message_id": "string",
    "body": "binary",
    "body_type": "string",
    "application_properties": PROPERTIES_TYPE,
    "session_id": "string",
    "correlation_id": "string",
    "subject": "string",
    "to": "string",
    "reply_to": "string",
    "reply_to_session_id": "string",
    "content_type": "string",
    "partition_key": "string",
    "time_to_live_ms": "bigint",
    "scheduled_enqueue_time_utc": "timestamp",
    "enqueued_time_utc": "timestamp",
    "expires_at_utc": "timestamp",
    "enqueued_sequence_number": "bigint",
    "delivery_count": "int",
    "state": "string",
    "dead_letter_reason": "string",
    "dead_letter_error_description": "string",
    "dead_letter_source": "string",
}
"""What is read, with its type in Spark."""


def schema_of(names: Collection[str] | None) -> str:
    """The schema of these columns, or of all."""
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in COLUMNS if names is None or name in names)


WRITTEN: Final[Mapping[str, tuple[str, ...]]] = {
    "entity": ("string",),
    "message_id": ("string",),
    "body": ("binary", "string"),
    "body_type": ("string",),
    "application_properties": (PROPERTIES_TYPE, "map<string,string>"),
    "session_id": ("string",),
    "correlation_id": ("string",),
    "subject": ("string",),
    "to": ("string",),
    "reply_to": ("string",),
    "reply_to_session_id": ("string",),
    "content_type": ("string",),
    "partition_key": ("string",),
    "time_to_live_ms": ("bigint", "int"),
    "scheduled_enqueue_time_utc": ("timestamp",),
}
"""What is written, with the types that are taken for it."""


def read_problems(asked: Mapping[str, str]) -> list[str]:
    """What is wrong with a schema to read with; it may have fewer columns than there are."""
    problems = [f"there is no column {name}" for name in asked if name not in COLUMNS]
    return problems + [
        f"column {name} is {COLUMNS[name]}, not {kind}"
        for name, kind in asked.items()
        if name in COLUMNS and kind != COLUMNS[name]
    ]


def write_problems(given: Mapping[str, str], *, has_target: bool, makes_ids: bool) -> list[str]:
    """What is wrong with columns to send."""
    problems = [f"there is no column {name} to send" for name in given if name not in COLUMNS]
    problems += [
        f"column {name} must be {' or '.join(WRITTEN[name])}, not {kind}"
        for name, kind in given.items()
        if name in WRITTEN and kind not in WRITTEN[name]
    ]
    if "body" not in given:
        problems.append("there is no column body")
    if "message_id" not in given and not makes_ids:
        problems.append(
            "there is no column message_id: it tells a repeated send from a new message; add one, or set "
            "generateMessageIds=true and live with repeats"
        )
    if "entity" not in given and not has_target:
        problems.append("nothing says where to: set queue, or add a column entity")
    return problems
