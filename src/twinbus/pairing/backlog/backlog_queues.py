"""The backlog queues of a primary: what they are called and how they are made (P1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_LONGEST_TIME = "P10675199DT2H48M5.4775807S"  # the longest time the service knows: for ever

BACKLOG_SETTINGS: Final[Mapping[str, int | str | bool]] = MappingProxyType(
    {
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2_147_483_647,
        "default_message_time_to_live": _LONGEST_TIME,
        "auto_delete_on_idle": _LONGEST_TIME,
        "lock_duration": "PT1M",
        "dead_lettering_on_message_expiration": True,
        "enable_batched_operations": True,
    }
)
"""What a new backlog queue is given, as keywords of the administration client's `create_queue`."""

_FOLDER = "x-servicebus-transfer"
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_ANY_PATH = re.compile(rf".+/{_FOLDER}/({_INDEX.pattern})(/\$.*)?\Z", re.ASCII | re.IGNORECASE)


def backlog_path(primary_name: str, index: int) -> str:
    """The path of one backlog queue of this primary."""
    return f"{primary_name}/{_FOLDER}/{index}"


def index_of(path: str, primary_name: str) -> int | None:
    """The index of a backlog queue of this primary, None for any other queue; case does not count, as in all paths."""
    folder, _, number = path.rpartition("/")
    if folder.casefold() != f"{primary_name}/{_FOLDER}".casefold() or not _INDEX.fullmatch(number):
        return None
    return int(number)


def is_backlog_path(path: str) -> bool:
    """Whether this is a backlog queue of any primary, or the dead letters of one."""
    return _ANY_PATH.match(path) is not None
