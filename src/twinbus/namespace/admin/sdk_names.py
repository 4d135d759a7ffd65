"""Settings by the names that the official administration client gives them: `lock_duration` for `lock_ms`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, TypeVar

from twinbus.errors import OptionsError
from twinbus.namespace.admin.durations import INFINITE_MS, write_endless
from twinbus.namespace.admin.fields import Field
from twinbus.namespace.entities.settings import Settings

Kind = TypeVar("Kind", bound=Settings)


def settings_of(kind: type[Kind], fields: Iterable[Field], given: Mapping[str, Any]) -> Kind:
    """Settings by our names or the SDK's; raises `OptionsError` with everything that is wrong."""
    ours = set(inspect.signature(kind).parameters)
    theirs = {_sdk_name(field.element): field for field in fields}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in given.items():
        field = theirs.get(name)
        if field is None and name not in ours:
            problems.append(
                f"{name} is no setting of a {kind.KIND}: those are {', '.join(sorted(ours | theirs.keys()))}"
            )
        elif name in ours:
            values[name] = value
        elif field is not None and field.setting in given:
            problems.append(f"{name} and {field.setting} are the same setting: give one of them")
        elif field is not None:
            try:
                values[field.setting] = None if value is None else field.form.read(_as_text(value))
            except ValueError:
                problems.append(f"{name} takes {field.form.name} or what the SDK takes, got {value!r}")
    if problems:
        raise OptionsError("; ".join(problems))
    return kind(**values)


def _sdk_name(element: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", element).lower()


def _as_text(value: object) -> str:
    """A value of the SDK as its client would write it."""
    match value:
        case timedelta():
            value_ms = round(value / timedelta(milliseconds=1))
            return write_endless(None if value_ms >= INFINITE_MS else value_ms)
        case Enum():
            return str(value.value)
        case bool():
            return str(value).lower()
        case _:
            return str(value)
