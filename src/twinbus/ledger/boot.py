"""Which start of the machine this is, and when it was: what was written before a power cut may not be on the disk."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """A name for the time since the machine was started; empty where the system does not tell."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def booted_ms() -> int:
    """About when the machine was started, in UTC milliseconds; 0 where the system does not tell."""
    try:
        since_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return 0
    return round((time.time() - since_s) * 1000)
