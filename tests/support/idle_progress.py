"""A look at a syphon that has done nothing yet; tests change what they are about with `dataclasses.replace`."""

from __future__ import annotations

from twinbus.syphon import Progress

IDLE = Progress(
    state="running",
    seconds=0.0,
    moved=0,
    moved_bytes=0,
    rate=0.0,
    received=0,
    repeated=0,
    in_doubt=0,
    refused=0,
    expired=0,
    released=0,
    held=0,
    oldest_age_s=None,
    left=None,
    seconds_left=None,
    destinations=(),
    troubles=(),
)
