"""The board's queue: what it is called and how it is made."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from twinbus.units import iso_duration

LIFE_S: Final = 300
"""Time to live of a report."""

BOARD_SETTINGS: Final[Mapping[str, int | str | bool]] = MappingProxyType(
    {
        "max_size_in_megabytes": 1024,
        "max_delivery_count": 2_147_483_647,  # who clears it gives back what is not over
        "default_message_time_to_live": iso_duration(LIFE_S * 1000),
        "lock_duration": "PT1M",
        "dead_lettering_on_message_expiration": False,
        "requires_session": False,
        "requires_duplicate_detection": False,
        "enable_partitioning": False,
        "enable_batched_operations": True,
    }
)
"""What a new board is given, as keywords of the administration client's `create_queue`."""

_NAME = "x-twinbus-board"


def board_path(primary_name: str) -> str:
    """The path of the board of this primary, on the secondary."""
    return f"{primary_name}/{_NAME}"


def is_board_path(path: str) -> bool:
    """Whether this is the board of any primary."""
    return path.casefold().endswith(f"/{_NAME}")
