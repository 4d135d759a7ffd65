"""SQL filters: does a message pass?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from twinbus.namespace.sql.compilation import Answer, Compiler
from twinbus.namespace.sql.parser import parse_filter


@dataclass(frozen=True, slots=True)
class Filter:
    text: str
    matches: Answer
    """True, False or None (unknown) for a message; only True selects it. May raise `FilterError`."""


def compile_filter(
    text: str, parameters: Mapping[str, object] | None = None, *, new_id: Callable[[], UUID] = uuid4
) -> Filter:
    """The filter, ready to be asked about many messages; raises `SqlError` if the text is no filter.

    Parameters may be named with or without their @. `new_id` is what `newid()` gives.
    """
    return Filter(text, Compiler(parameters or {}, new_id).condition(parse_filter(text)))
