"""LIKE: `%` stands for any characters, `_` for one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from twinbus.broker.filters.rule_errors import FilterError

PATTERN_LENGTH: Final = 1024
"""Characters of a pattern; one written in a rule is always shorter."""

Piece = tuple[str | None, ...]
"""The part between two `%`, character by character; None: any character."""


class LikePattern:
    """A compiled pattern.

    A part after a `%` is searched for once, without backtracking: the leftmost match is always good enough. So the time
    grows with the text, not with text times pattern: rules and texts come from different clients, and a slow match
    would delay everybody.
    """

    def __init__(self, pieces: list[Piece]) -> None:
        self.length = sum(map(len, pieces)) + len(pieces) - 1
        """Of the pattern, in characters."""
        self._first = pieces[0]
        self._searched = [_Search(piece) for piece in pieces[1:-1] if piece]
        self._last = pieces[-1] if len(pieces) > 1 else None

    def matches(self, text: str) -> bool:
        if self._last is None:
            return len(text) == len(self._first) and _stands_at(self._first, text, 0)
        if not _stands_at(self._first, text, 0):
            return False
        at = len(self._first)
        for search in self._searched:
            end = search.end(text, at)
            if end is None:
                return False
            at = end
        start = len(text) - len(self._last)
        return start >= at and _stands_at(self._last, text, start)


SHORT_PIECE: Final = 128
"""Up to this length it is faster to try one position after the other."""


class _Search:
    """Searches for a piece. A long one with `_` is searched for at all positions at once, one bit for each."""

    def __init__(self, piece: Piece) -> None:
        self._text = "".join([each for each in piece if each is not None])
        self._is_plain = len(self._text) == len(piece)
        expression = "".join(["." if each is None else re.escape(each) for each in piece])
        self._expression = re.compile(expression, re.DOTALL) if len(piece) <= SHORT_PIECE else None
        self._goal = 1 << (len(piece) - 1)
        self._anything = sum([1 << place for place, each in enumerate(piece) if each is None])
        self._places = dict.fromkeys(self._text, self._anything)
        for place, each in enumerate(piece):
            if each is not None:
                self._places[each] |= 1 << place

    def end(self, text: str, start: int) -> int | None:
        """Where the first match ends; None: no match."""
        if self._is_plain:
            found = text.find(self._text, start)
            return None if found < 0 else found + len(self._text)
        if self._expression is not None:
            match = self._expression.search(text, start)
            return None if match is None else match.end()
        begun, places, anything = 0, self._places, self._anything
        for at in range(start, len(text)):
            begun = (begun << 1 | 1) & places.get(text[at], anything)
            if begun & self._goal:
                return at + 1
        return None


@lru_cache(maxsize=512)
def like_pattern(pattern: str, escape: str | None) -> LikePattern:
    """Compile a pattern; raises `FilterError` if it is invalid."""
    if len(pattern) > PATTERN_LENGTH:
        raise FilterError(f"a pattern is longer than {PATTERN_LENGTH} characters")
    if escape is not None and len(escape) != 1:
        raise FilterError("the escape character must be one character")
    return LikePattern(_pieces(pattern, escape))


def _pieces(pattern: str, escape: str | None) -> list[Piece]:
    """The parts between the `%`."""
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise FilterError("a pattern ends with its escape character")
            pieces[-1].append(escaped)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return [tuple(piece) for piece in pieces]


def _stands_at(piece: Piece, text: str, start: int) -> bool:
    if start + len(piece) > len(text):
        return False
    return all(each is None or text[start + place] == each for place, each in enumerate(piece))
