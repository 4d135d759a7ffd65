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
    known_patterns: tuple[int, ...] = ()
    """How long the patterns of its LIKEs are that stand in it: searching a long text takes long."""
    other_patterns: int = 0
    """How many LIKEs have a pattern that the message decides."""


def compile_filter(
    text: str, parameters: Mapping[str, object] | None = None, *, new_id: Callable[[], UUID] = uuid4
) -> Filter:
    """The filter, ready to be asked about many messages; raises `SqlError` if the text is no filter.

    Parameters may be named with or without their @. `new_id` is what `newid()` gives.
    """
    compiler = Compiler(parameters or {}, new_id)
    condition = compiler.condition(parse_filter(text))
    return Filter(text, condition, tuple(compiler.known_patterns), compiler.other_patterns)
