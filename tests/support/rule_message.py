"""A message for rules to look at, made of two mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinbus.broker.filters.properties import MISSING, SYSTEM_PROPERTIES


class RuleMessage:
    """A view as rules expect it; asking for a name in any other form than promised is an error here."""

    def __init__(self, user: Mapping[str, Any] | None = None, system: Mapping[str, Any] | None = None) -> None:
        self._user = {name.lower(): value for name, value in (user or {}).items()}
        self._system = dict(system or {})
        assert set(self._system) <= set(SYSTEM_PROPERTIES)

    def system(self, name: str, /) -> Any:
        assert name in SYSTEM_PROPERTIES
        return self._system.get(name)

    def user(self, name: str, /) -> Any:
        assert name == name.lower()
        return self._user.get(name, MISSING)
