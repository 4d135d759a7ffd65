"""The rules of docs/reference/cli.md for numbers in JSON, to be held against any document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3,6})?Z")
OTHER_UNITS = re.compile(r"(.*_)?(ms|us|ns|min|minutes|hours|seconds|kb|mb|size|bytes_max|per_second|rate)|ms_.*|bytes")
SHARES = {"availability", "probability", "share"}
CHOSEN_BY_USERS = {"properties", "places", "sessions", "duplicate_detection"}
EPOCH = range(10**9, 10**14)
NUMBERS_OF_OURS = ("sequence_number", "sequence_numbers", "crc")
"""Whole numbers that may be as large as a time."""


def broken_rules(document: Any, path: str = "") -> Iterator[str]:
    """Each number whose name or value breaks a rule."""
    if isinstance(document, list):
        for each in document:
            yield from broken_rules(each, path)
        return
    if isinstance(document, dict):
        for name, value in document.items():
            if name not in CHOSEN_BY_USERS:
                yield from broken_rules(value, f"{path}.{name}")
        return
    name = path.rpartition(".")[2]
    if document is None or isinstance(document, bool):
        return
    is_number = isinstance(document, int | float)
    if name == "at" or name.endswith("_at"):
        if is_number or MOMENT.fullmatch(document) is None:
            yield f"{path} is not a time in UTC: {document!r}"
    elif is_number and OTHER_UNITS.fullmatch(name):
        yield f"{path} has another unit: {document!r}"
    elif name.endswith("_bytes") and not isinstance(document, int):
        yield f"{path} is not a whole number: {document!r}"
    elif isinstance(document, float) and not (
        name.endswith("_s") or name in SHARES or "usd" in path or name == "outages"
    ):
        yield f"{path} is neither a duration nor a whole number: {document!r}"
    elif is_number and not name.endswith("_bytes") and name not in NUMBERS_OF_OURS and int(document) in EPOCH:
        yield f"{path} looks like a time: {document!r}"
