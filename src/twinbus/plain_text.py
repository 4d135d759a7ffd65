"""Makes foreign texts harmless before they are shown: terminals obey control characters, and names may be hostile.

Everything that a command writes for people goes through `shown` or `on_one_line`, every line of a log through
`LogLines`; pages go through `in_html` and `in_markdown`, values in lines of `name=value` through `as_word`. JSON needs
none of them: it has an escape for every character that is not ASCII.
"""

from __future__ import annotations

import html
import json
import logging
import re
from collections.abc import Iterable, Sequence

MARK = "\N{MIDDLE DOT}"
"""Stands for a character that cannot be shown."""
LINE_LENGTH_MAX = 2_000
"""Characters of a text on one line; the rest is left out, and an ellipsis says so."""
HIDDEN = "***"

_SECRET = re.compile(r"(?i)\b(SharedAccessKey|SharedAccessSignature|AccountKey|sig)(\s*=\s*|%3D)[^\s;&,'\"\\]+")
_KEY_LIKE = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{43}=(?![A-Za-z0-9+/=])")
"""32 bytes in base64: what the keys of the service look like."""
_LOGIN = re.compile(r"(?i)\b(https?://)[^\s;'\"\\]+@")
"""User and password in an address."""
_SIGNED = re.compile(r"(?i)(SharedAccessSignature) sr=[^\s;'\"\\]+")


def harmless(text: str, kept: str = "") -> str:
    """The text with a mark for everything that cannot be printed; characters in `kept` stay.

    Not printable are control characters (also those of ANSI escapes), characters that turn the direction of writing
    around, line breaks of every kind, and lone surrogates.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in kept else MARK for letter in text)


def on_one_line(text: str, length_max: int = LINE_LENGTH_MAX) -> str:
    """The same on one line and not too long, with one space wherever there was any."""
    line = harmless(" ".join(text[: 4 * length_max].split()))
    return line if len(line) <= length_max else f"{line[:length_max]}..."


def first_few(names: Sequence[str], most: int) -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_WORD = re.compile(r"[\w.,:/+@%-]+")


def as_word(text: str, length_max: int) -> str:
    """A value in a line of `name=value`: without spaces, or in quotes."""
    line = on_one_line(text, length_max)
    return line if _WORD.fullmatch(line) else json.dumps(line, ensure_ascii=False)


def in_html(text: str, kept: str = "") -> str:
    """The text as a page shows it, whatever markup is in it; characters in `kept` stay."""
    return html.escape(harmless(text[:LINE_LENGTH_MAX], kept))


_MARKDOWN = re.compile(r"[\\`*_\[\]<>#|~&]")


def in_markdown(text: str) -> str:
    """The text on one line of a Markdown page, or in a cell of a table there, whatever markup is in it."""
    return _MARKDOWN.sub(r"\\\g<0>", on_one_line(text))


def without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def without_keys(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without keys, signatures and passwords: after their names, looking like one, and these `secrets`."""
    text = _SIGNED.sub(rf"\1={HIDDEN}", without(text, secrets))
    text = _SECRET.sub(rf"\1={HIDDEN}", _LOGIN.sub(rf"\1{HIDDEN}@", text))
    return _KEY_LIKE.sub(HIDDEN, text)


def shown(text: str) -> str:
    """Lines for a terminal: nothing in them moves its cursor or changes its colours."""
    return harmless(text, "\n\t")


LINES_ALIKE_MAX = 10
"""How many lines that differ only in their values are written per `SPAN_S`; the rest is counted."""
SPAN_S = 60.0
KINDS_REMEMBERED = 1_000


class LogLines(logging.Formatter):
    """Every record is one line; a traceback follows it, indented, so that no text in it can pass for a line."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        line = self._prefix + on_one_line(without_keys(record.getMessage()))
        if record.exc_info:
            trace = without_keys(self.formatException(record.exc_info))
            line += "".join(f"\n    {harmless(each[:LINE_LENGTH_MAX])}" for each in trace.splitlines())
        return line


class RateLimit(logging.Filter):
    """Keeps a peer from filling a log: a few similar lines a minute are written, then how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        alike = (record.name, str(record.msg))
        if len(self._seen) > KINDS_REMEMBERED:
            self._seen.clear()
        began, count = self._seen.get(alike, (record.created, 0))
        if not 0 <= record.created - began < SPAN_S:
            left_out = count - LINES_ALIKE_MAX
            if left_out > 0:
                record.msg, record.args = f"{record.getMessage()} (and {left_out:,} more like this were left out)", ()
            began, count = record.created, 0
        self._seen[alike] = (began, count + 1)
        return count < LINES_ALIKE_MAX
