"""Tests of the SDK that do not pass here, each with its reason."""

from __future__ import annotations

NOT_APPLICABLE: dict[str, str] = {}
"""About something that is not the server."""

FAILS: dict[str, str] = {}
"""Our server, or the limits of a run on one machine."""
