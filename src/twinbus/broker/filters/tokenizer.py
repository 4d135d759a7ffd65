"""Split the text of a rule into tokens."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Final, NamedTuple

from twinbus.broker.filters.rule_errors import SqlError

KEYWORDS: Final = frozenset(
    ("AND", "ESCAPE", "EXISTS", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "REMOVE", "SET", "TRUE")
)
INTEGER_LIMIT: Final = 2**63
"""The largest integer that may be written, and only after a minus."""


class TokenKind(StrEnum):
    KEYWORD = "a keyword"
    NAME = "a name"
    QUOTED = "a quoted name"
    PARAMETER = "a parameter"
    NUMBER = "a number"
    TEXT = "a text"
    SIGN = "a sign"
    END = "the end"


class SqlToken(NamedTuple):
    kind: TokenKind
    value: str | int | float
    """Keywords in capitals, names and texts without their quotes, numbers as such."""
    at: int


_WORDS: Final = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<name>[^\W\d_]\w*)
    | (?P<parameter>@\w+)
    | (?P<text>'(?:[^']|'')*')
    | (?P<bracketed>\[(?:[^\]]|\]\])*\])
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<sign><>|!=|<=|>=|[-+*/%<>=(),.;])
    """,
    re.VERBOSE,
)
_UNFINISHED: Final = {
    "'": "a text without its closing '",
    "[": "a name without its closing ]",
    '"': 'a name without its closing "',
}


def tokenize(text: str) -> list[SqlToken]:
    """The tokens of the text, the last one END; raises `SqlError` for an invalid character."""
    tokens: list[SqlToken] = []
    at = 0
    while at < len(text):
        found = _WORDS.match(text, at)
        if found is None:
            raise SqlError(_complaint(text[at]), text, at)
        if found.lastgroup != "space":
            tokens.append(_token(str(found.lastgroup), found.group(), text, at))
        at = found.end()
    return [*tokens, SqlToken(TokenKind.END, "", len(text))]


def _complaint(character: str) -> str:
    if character in _UNFINISHED:
        return _UNFINISHED[character]
    if character == "_":
        return "a name begins with a letter; any other name goes in [ ]"
    return "no filter or action has this character outside quotes"


def _token(group: str, word: str, text: str, at: int) -> SqlToken:
    match group:
        case "number":
            return SqlToken(TokenKind.NUMBER, _number(word, text, at), at)
        case "name":
            return _name(word, text, at)
        case "parameter":
            return SqlToken(TokenKind.PARAMETER, word[1:], at)
        case "text":
            return SqlToken(TokenKind.TEXT, word[1:-1].replace("''", "'"), at)
        case "sign":
            return SqlToken(TokenKind.SIGN, "<>" if word == "!=" else word, at)
        case _:
            return _quoted(word, text, at)


def _number(word: str, text: str, at: int) -> int | float:
    after = text[at + len(word) : at + len(word) + 1]
    if after.isalnum() or after == "_":
        raise SqlError("a number runs into a name", text, at)
    value = int(word) if word.isdecimal() else float(word)
    if isinstance(value, int) and value > INTEGER_LIMIT:
        raise SqlError("an integer does not fit in 64 bits", text, at)
    if math.isinf(value):
        raise SqlError("a number is too large", text, at)
    return value


def is_regular(name: str) -> bool:
    """Whether the name can be written without brackets, unless it is a keyword."""
    return name[:1].isalpha() and all(c.isalpha() or c.isdecimal() or c == "_" for c in name)


def is_keyword(name: str) -> bool:
    return name.isascii() and name.upper() in KEYWORDS  # 'ſet'.upper() is SET, but not a keyword


def _name(word: str, text: str, at: int) -> SqlToken:
    if not is_regular(word):
        raise SqlError("a name has letters, digits and _ only; any other name goes in [ ]", text, at)
    return SqlToken(TokenKind.KEYWORD, word.upper(), at) if is_keyword(word) else SqlToken(TokenKind.NAME, word, at)


def _quoted(word: str, text: str, at: int) -> SqlToken:
    closing = word[-1]
    name = word[1:-1].replace(closing * 2, closing)
    if not name:
        raise SqlError("a name is empty", text, at)
    return SqlToken(TokenKind.QUOTED, name, at)
