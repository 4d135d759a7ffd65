"""The integer types of AMQP, each with its smallest and its largest value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twinbus.amqp.codec.types import Byte, Int, Long, Short, Timestamp, UByte, UInt, ULong, UShort

INTEGER_TYPES: list[tuple[Callable[[int], Any], int, int]] = [
    (UByte, 0, 2**8 - 1),
    (UShort, 0, 2**16 - 1),
    (UInt, 0, 2**32 - 1),
    (ULong, 0, 2**64 - 1),
    (Byte, -(2**7), 2**7 - 1),
    (Short, -(2**15), 2**15 - 1),
    (Int, -(2**31), 2**31 - 1),
    (Long, -(2**63), 2**63 - 1),
    (Timestamp, -(2**63), 2**63 - 1),
]
