"""Capabilities that our namespaces offer in the open frame of a connection, beside what the service itself offers."""

from __future__ import annotations

from typing import Final

DROPS_PINGS: Final = "twinbus:drops-pings"
"""Messages with the content type of a ping are checked like any other, and then dropped: no receiver gets one."""
