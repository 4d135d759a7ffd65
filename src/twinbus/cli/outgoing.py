"""Messages as a command line describes them: where bodies come from, and what every message carries."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from twinbus.errors import OptionsError, TwinbusError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

COUNT_MAX = 10_000_000
NUMBER = "{n}"
"""Stands for the number of a message, where one description makes many."""
_INT32 = 2**31
"""The official SDK sends whole numbers as AMQP int."""
STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Source:
    """Where bodies come from: an argument, a file as a whole, or lines."""

    body: str | None
    file: Path | None
    by_lines: bool
    count: int = 1
    """How often each body is sent."""

    def __post_init__(self) -> None:
        if self.body is not None and (self.file is not None or self.by_lines):
            raise OptionsError("the body is given twice: as an argument, or with --file or --lines, not both")
        if not 1 <= self.count <= COUNT_MAX:
            raise OptionsError(f"--repeat must be from 1 to {COUNT_MAX}, got {self.count}")
        if self.body is None and self.file is None and not self.by_lines and sys.stdin.isatty():
            raise OptionsError("what is to be sent? give a body, or --file FILE, or lines on the standard input")
        if self.file is not None and self.file != STDIN and not self.file.is_file():
            raise OptionsError(f"--file {self.file} is no file that can be read")

    @property
    def total(self) -> int | None:
        """How many messages there will be; None if only the end of the lines can tell."""
        return self.count if self.body is not None or not self._is_lines else None

    @property
    def _is_lines(self) -> bool:
        return self.by_lines or (self.body is None and self.file is None)

    def bodies(self) -> Iterator[bytes]:
        """Each as often as it is to be sent. Raises `TwinbusError` if it cannot be read."""
        try:
            for body in self._read():
                for _ in range(self.count):
                    yield body
        except OSError as error:
            raise TwinbusError(f"{self.file or 'the standard input'} cannot be read: {error.strerror}") from None

    def _read(self) -> Iterator[bytes]:
        if self.body is not None:
            yield self.body.encode(errors="surrogateescape")
        elif not self._is_lines:
            yield sys.stdin.buffer.read() if self.file in (None, STDIN) else Path(str(self.file)).read_bytes()
        elif self.file in (None, STDIN):
            yield from _lines(sys.stdin.buffer)
        else:
            with Path(str(self.file)).open("rb") as opened:
                yield from _lines(opened)


def _lines(opened: Any) -> Iterator[bytes]:
    """Without their ends; empty ones are left out."""
    for line in opened:
        text = line.rstrip(b"\r\n")
        if text:
            yield text


@dataclass(frozen=True, slots=True)
class Form:
    """What every message carries beside its body; `{n}` in an id or a session is the number of the message."""

    message_id: str | None = None
    session: str | None = None
    ttl_s: float | None = None
    schedule: datetime | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    """`subject`, `content_type` and so on, as the SDK calls them."""
    is_numbered: bool = False
    """Whether `{n}` means anything: only where one description makes many."""

    def filled(self, body: bytes, number: int) -> ServiceBusMessage:
        """The message with this number; raises `OptionsError` if it cannot be one."""
        from azure.servicebus import ServiceBusMessage

        if self.is_numbered:
            body = body.replace(NUMBER.encode(), str(number).encode())
        try:
            return ServiceBusMessage(
                body,
                message_id=self._numbered(self.message_id, number) or uuid4().hex,
                session_id=self._numbered(self.session, number),
                time_to_live=None if self.ttl_s is None else timedelta(seconds=self.ttl_s),
                scheduled_enqueue_time_utc=self.schedule,
                application_properties=dict(self.properties) or None,  # type: ignore[arg-type]
                **self.fields,
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise OptionsError(f"such a message cannot be made: {error}") from None

    def _numbered(self, text: str | None, number: int) -> str | None:
        return text.replace(NUMBER, str(number)) if text is not None and self.is_numbered else text


def parse_properties(texts: Sequence[str]) -> dict[str, Any]:
    """`name=text` and `name:=5`, `name:=true`; raises `OptionsError`."""
    return dict(map(_parse_property, texts))


def _parse_property(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":").strip()
    if not equals or not name:
        raise OptionsError(f"--property takes NAME=TEXT, or NAME:=5 for a number, got {text!r}")
    return name, _plain_value(name, value) if is_json else value


def _plain_value(name: str, text: str) -> int | float | bool:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, int | float) or (isinstance(value, int) and not -_INT32 <= value < _INT32):
        raise OptionsError(
            f"--property {name}:= takes true, false or a number of at most 32 bits, got {text!r}; texts are {name}=TEXT"
        )
    return value
