"""LIKE: `%` stands for any characters, `_` for one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from twinbus.namespace.sql.failures import FilterError

PATTERN_LENGTH: Final = 1024
"""Characters of a pattern; one written in a rule is always shorter."""

_ANY, _ONE = object(), object()


@lru_cache(maxsize=512)
def like(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The pattern, to be given texts with `.match`; raises `FilterError` if it is none.

    What follows a `%` is searched for once and never given up again (an atomic group): leftmost is always good
    enough, and going back would let a pattern of many `%` keep the namespace busy for hours.
    """
    if len(pattern) > PATTERN_LENGTH:
        raise FilterError(f"a pattern is longer than {PATTERN_LENGTH} characters")
    if escape is not None and len(escape) != 1:
        raise FilterError("the escape character must be one character")
    first, *others = _pieces(pattern, escape)
    if not others:
        return re.compile(rf"{first}\Z", re.DOTALL)
    *middle, last = others
    searched = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return re.compile(rf"{first}{searched}.*{last}\Z", re.DOTALL)


def _pieces(pattern: str, escape: str | None) -> list[str]:
    """The expressions between the `%`."""
    pieces = [""]
    for token in _tokens(pattern, escape):
        if token is _ANY:
            pieces.append("")
        else:
            pieces[-1] += "." if token is _ONE else re.escape(str(token))
    return pieces


def _tokens(pattern: str, escape: str | None) -> list[object]:
    tokens: list[object] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise FilterError("a pattern ends with its escape character")
            tokens.append(escaped)
        else:
            tokens.append({"%": _ANY, "_": _ONE}.get(character, character))
    return tokens
