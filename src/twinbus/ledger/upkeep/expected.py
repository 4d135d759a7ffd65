"""Expected writers of a ledger: a list by host and program, in `expected.toml` beside the segments.

A writer that is absent altogether leaves no gap in any numbers, so only a list can show that it is missing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Protocol

import msgspec

from twinbus.errors import OptionsError
from twinbus.ledger.reading.process_end import FOREVER_MS
from twinbus.storage import Location, open_folder
from twinbus.units import utc_time_ms

EXPECTED_FILE = "expected.toml"
KEYS = ("host", "program", "since", "until")
FORM = 'as [[writer]] host = "web-1" program = "shop"'
_HEAD = re.compile(r"^\s*\[\[\s*writer\s*\]\]", re.MULTILINE)


class ExpectedWriter(msgspec.Struct, frozen=True):
    """A process that is expected to write. Names may contain `*` and `?`."""

    host: str = "*"
    program: str = "*"
    since_ms: int = 0
    until_ms: int = FOREVER_MS

    def __str__(self) -> str:
        return f"{self.program} on {self.host}"

    def is_called(self, host: str, program: str) -> bool:
        return fnmatchcase(host.casefold(), self.host.casefold()) and fnmatchcase(
            program.casefold(), self.program.casefold()
        )


class Presence(Protocol):
    """A process whose records are there."""

    host: str
    program: str
    first_ms: int
    last_ms: int


def load_expected(directory: Location) -> tuple[ExpectedWriter, ...]:
    """The writers that a ledger expects; none if it has no such file. Raises `OptionsError` with file and line."""
    folder = open_folder(directory)
    file = folder.where(EXPECTED_FILE)
    try:
        text = folder.read(EXPECTED_FILE).decode()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionsError(f"{file} cannot be read: {error}") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionsError(f"{file} is not TOML: {error}; writers are listed {FORM}") from error
    return _writers(file, text, table)


def _writers(file: str, text: str, table: dict[str, Any]) -> tuple[ExpectedWriter, ...]:
    others = sorted(set(table) - {"writer"})
    if others:
        raise OptionsError(f"{file}{_line_of(text, others[0])}: {others[0]!r} means nothing; writers are listed {FORM}")
    listed = table.get("writer", [])
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise OptionsError(f"{file}: writer must be a list of tables, {FORM}")
    lines = [text.count("\n", 0, head.end()) + 1 for head in _HEAD.finditer(text)]
    return tuple(
        _writer(f"{file}:{lines[at]}" if len(lines) == len(listed) else f"{file}, writer {at + 1}", each)
        for at, each in enumerate(listed)
    )


def _line_of(text: str, key: str) -> str:
    found = re.search(rf"^\s*\[*\s*[\"']?{re.escape(key)}\b", text, re.MULTILINE)
    return f":{text.count(chr(10), 0, found.end()) + 1}" if found else ""


def _writer(where: str, table: dict[str, Any]) -> ExpectedWriter:
    wrong = [f"{key!r} means nothing, the keys are {', '.join(KEYS)}" for key in table if key not in KEYS]
    wrong += [
        f"{key} must be a text, got {table[key]!r}" for key in KEYS[:2] if not isinstance(table.get(key, ""), str)
    ]
    wrong += [
        f"{key} must be a time as 2026-01-31T00:00:00Z, got {table[key]!r}"
        for key in KEYS[2:]
        if key in table and not isinstance(table[key], datetime)
    ]
    if not (table.get("host") or table.get("program")):
        wrong.append(f"a writer needs a host or a program, {FORM}")
    if wrong:
        raise OptionsError(f"{where}: {'; '.join(wrong)}")
    writer = ExpectedWriter(
        table.get("host") or "*",
        table.get("program") or "*",
        _ms(table["since"]) if "since" in table else 0,
        _ms(table["until"]) if "until" in table else FOREVER_MS,
    )
    if writer.since_ms >= writer.until_ms:
        raise OptionsError(f"{where}: since must be before until")
    return writer


def _ms(moment: datetime) -> int:
    """A time without a zone is UTC."""
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def absent(expected: Iterable[ExpectedWriter], present: Iterable[Presence]) -> list[ExpectedWriter]:
    """The expected writers without a record of their time."""
    seen = list(present)
    return [writer for writer in expected if not any(_is_seen(writer, each) for each in seen)]


def _is_seen(writer: ExpectedWriter, each: Presence) -> bool:
    return (
        writer.is_called(each.host, each.program)
        and each.first_ms <= writer.until_ms
        and each.last_ms >= writer.since_ms
    )


def why_absent(writer: ExpectedWriter) -> str:
    where = "is its ledger kept elsewhere, or was it not copied?"
    return f"{EXPECTED_FILE} expects {writer}, and no record is from it: {where}"


def expect_present(directory: Location, present: Iterable[Presence]) -> list[ExpectedWriter]:
    """Expect every writer that is there, from its first record on. Returns the added ones.

    Raises `OptionsError` for a wrong file.
    """
    known = load_expected(directory)
    first: dict[tuple[str, str], int] = {}
    for each in present:
        if each.host and each.program:
            names = each.host, each.program
            first[names] = min(first.get(names, each.first_ms), each.first_ms)
    fresh = [
        ExpectedWriter(*names, since_ms=since_ms // 1000 * 1000)
        for names, since_ms in sorted(first.items())
        if not any(each.is_called(*names) for each in known)
    ]
    if fresh:
        folder = open_folder(directory)
        before = folder.read(EXPECTED_FILE).decode().rstrip("\n") + "\n\n" if folder.exists(EXPECTED_FILE) else ""
        texts = [
            f"[[writer]]\nhost = {_text(each.host)}\nprogram = {_text(each.program)}\n{_since(each)}" for each in fresh
        ]
        folder.put(EXPECTED_FILE, (before + "\n".join(texts)).encode())
    return fresh


def _since(writer: ExpectedWriter) -> str:
    return f"since = {utc_time_ms(writer.since_ms)}\n" if writer.since_ms > 0 else ""


def _text(value: str) -> str:
    """As TOML has it: JSON's texts are among its own. What would be a pattern stands for itself as far as it can."""
    return msgspec.json.encode(re.sub(r"[*?\[]", "?", value)).decode()
