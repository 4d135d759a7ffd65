"""Every limit of a namespace, or of a proxy, under one name, for the command line and for tests.

Three groups of limits exist because three rooms keep them: what peers may take of the server, how much traffic may be
under way, and when to say *server busy* (those begin with `busy_`). To set one nobody needs to know that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from twinbus.broker.faults.throttle import ThrottleLimits
from twinbus.broker.limits import ServerLimits, TrafficLimits
from twinbus.errors import OptionsError
from twinbus.options import EndpointOptions

_GROUPS: dict[str, tuple[str, type]] = {
    "limits": ("", TrafficLimits),
    "server_limits": ("", ServerLimits),
    "throttle": ("busy_", ThrottleLimits),
}
_PLACES: dict[str, tuple[str, str]] = {
    prefix + field.name: (group, field.name) for group, (prefix, kind) in _GROUPS.items() for field in fields(kind)
}
"""Name of a limit -> the options' group it belongs to, and its name there."""

LIMIT_NAMES = tuple(sorted(_PLACES))


Options = TypeVar("Options", bound=EndpointOptions)


def with_limits(options: Options, limits: Mapping[str, float]) -> Options:
    """The options with some limits changed; raises `OptionsError` with everything that is wrong."""
    known = [name for name in LIMIT_NAMES if hasattr(options, _PLACES[name][0])]
    unknown = [name for name in limits if name not in known]
    if unknown:
        raise OptionsError(f"no limit is called {', '.join(unknown)}: there are {', '.join(known)}")
    changes: dict[str, dict[str, Any]] = {}
    for name, value in limits.items():
        group, field = _PLACES[name]
        changes.setdefault(group, {})[field] = int(value) if float(value).is_integer() else value
    return replace(options, **{group: replace(getattr(options, group), **found) for group, found in changes.items()})


def parse_limits(texts: list[str]) -> dict[str, float]:
    """`["connections=100"]` -> `{"connections": 100.0}`."""
    limits: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        try:
            limits[name.strip().replace("-", "_")] = float(value)
        except ValueError:
            raise OptionsError(f"--limit takes NAME=NUMBER, as connections=100, got {text!r}") from None
        if not equals or not 0 <= limits[name.strip().replace("-", "_")] < 2**62:
            raise OptionsError(f"--limit takes NAME=NUMBER, as connections=100, got {text!r}")
    return limits
