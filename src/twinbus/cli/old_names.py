"""Options that had another name once. The old one still works and is shown nowhere.

Each name means one thing in all commands; what meant another thing somewhere was renamed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

_QUEUES = {"--count": "--queues"}
OLD_NAMES: Mapping[str, Mapping[str, str]] = {
    "bench": {"--clients": "--connections"},
    "cost forecast": {"--entities": "--entity-count"},
    "drill": _QUEUES | {"--before": "--warm-up"},
    "ledger tail": {"--lines": "--last"},
    "pair": _QUEUES,
    "pipeline drain": _QUEUES | {"--ttl": "--ttl-mode"},
    "send": {"--count": "--repeat"},
    "status": _QUEUES,
    "syphon": _QUEUES | {"--ttl": "--ttl-mode"},
    "syphon quarantine discard": _QUEUES,
    "syphon quarantine list": _QUEUES,
    "syphon quarantine redrive": _QUEUES,
    "syphon quarantine show": _QUEUES,
}
"""By command, the new name of each old one."""


def accept_old_names(command: Any, path: tuple[str, ...] = ()) -> None:
    """Make a command and all below it take the old names too."""
    old_names = OLD_NAMES.get(" ".join(path))
    if old_names is not None:
        _extend(command, old_names)
    for name, each in getattr(command, "commands", {}).items():
        accept_old_names(each, (*path, name))


def _extend(command: Any, old_names: Mapping[str, str]) -> None:
    make_parser = command.make_parser

    def make(context: Any) -> Any:
        parser = make_parser(context)
        for old, new in old_names.items():
            (option,) = [each for each in command.params if new in each.opts]
            twin = copy.copy(option)  # parsed under another name into the same value
            twin.opts, twin.secondary_opts = [old], []
            twin.add_to_parser(parser, context)
        return parser

    command.make_parser = make
