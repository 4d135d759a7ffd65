"""Old public names, modules and metrics. Each works until version 0.3.0; using an old name or module warns.

A rename adds one line to a table here; `docs/reference/deprecated.md` is generated from the tables. `import twinbus`
imports this module, so it stays small: an old module is made when it is first used, and its successor imported then.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from warnings import warn

REMOVED_IN = "0.3.0"

NAMES: dict[str, str] = {
    "twinbus.News": "twinbus.PairEvent",
    "twinbus.Side": "twinbus.NamespaceSide",
    "twinbus.Verdict": "twinbus.ErrorClass",
}
"""Names in a module: its `__getattr__` calls `find_renamed`. The module may be an old one as well."""

MODULES: dict[str, str] = {
    "twinbus.client.telemetry": "twinbus.client.reporting.telemetry",
    "twinbus.namespace.rights.jwt": "twinbus.broker.auth.jwt",
}

ATTRIBUTES: dict[str, str] = {"twinbus.Status.news_dropped": "twinbus.Status.events_dropped"}
"""Attributes of objects: each is a property that calls `warn_of`. `Status.as_dict` has both keys, without a warning."""

METRICS: dict[str, str] = {"twinbus_pair_news_dropped_total": "twinbus_pair_events_dropped_total"}
"""Metrics, as Prometheus writes them: both are exported."""


def find_renamed(module: str, name: str) -> Any:
    """What `name` in `module` is called now, with a warning. Raises `AttributeError` if it was never there."""
    old = f"{module}.{name}"
    if old not in NAMES:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warn_of(old, NAMES[old], stacklevel=4)
    home, _, new = NAMES[old].rpartition(".")
    return getattr(import_module(home), new)


def warn_of(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn the caller's caller that it uses an old name."""
    warn(f"{old} is now {new}; the old name is removed in {REMOVED_IN}", DeprecationWarning, stacklevel)


class OldModule(ModuleType):
    """A module that has moved, or a package that has only such modules left."""

    def __getattr__(self, name: str) -> Any:
        new = MODULES.get(self.__name__)
        if new is None or f"{self.__name__}.{name}" in NAMES:
            return find_renamed(self.__name__, name)
        return getattr(import_module(new), name)


class OldModules:
    """Finds and loads old modules: the last in `sys.meta_path`, so it is asked only for what is not there."""

    @classmethod
    def find_spec(cls, fullname: str, *_: object) -> ModuleSpec | None:
        is_package = any(old.startswith(f"{fullname}.") for old in MODULES)
        if not is_package and fullname not in MODULES:
            return None
        return ModuleSpec(fullname, cls(), is_package=is_package)  # type: ignore[arg-type]  # typeshed wants a base class

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in MODULES:
            warn_of(module.__name__, MODULES[module.__name__])


def install() -> None:
    """Let old modules be imported."""
    if OldModules not in sys.meta_path:
        sys.meta_path.append(OldModules)
