"""Sending in commands: straight to one namespace or through a pair, with receipts; bodies and message templates."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from twinbus.cli.arguments.option_groups import check_range
from twinbus.errors import OptionsError, SendError, TwinbusError

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

    from twinbus.client.namespace import Namespace
    from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
    from twinbus.client.sync.links import SenderLink
    from twinbus.client.sync.sender import PairedServiceBusSender
    from twinbus.pairing.sending.receipt import SendReceipt


class SendPath(Protocol):
    """How messages get to an entity."""

    def send(self, message: ServiceBusMessage | list[ServiceBusMessage]) -> SendReceipt:
        """Where it is stored; raises `SendError`, with a receipt if copies may be stored all the same."""


@contextlib.contextmanager
def straight_to(namespace: Namespace, entity: str, attempt_s: float) -> Iterator[SendPath]:
    """To one namespace, one attempt a message; raises `TwinbusError` if the entity cannot be reached."""
    from twinbus.client.sdk.failures import LinkFailed
    from twinbus.client.sdk.watchdog import Watchdog
    from twinbus.client.sync.links import SenderLink

    watchdog = Watchdog()
    client = namespace.sync_client(attempt_s)
    try:
        link = SenderLink.open(client, entity, deadline_s=attempt_s, watchdog=watchdog)
        try:
            yield _Straight(link, attempt_s)
        finally:
            link.discard()
    except LinkFailed as error:
        raise TwinbusError(f"{entity} on {namespace.host_label}: {error.failure}") from None
    finally:
        watchdog.stop()


class _Straight:
    def __init__(self, link: SenderLink, attempt_s: float) -> None:
        self._link, self._attempt_s = link, attempt_s

    def send(self, message: ServiceBusMessage | list[ServiceBusMessage]) -> SendReceipt:
        from twinbus.client.sdk.failures import LinkFailed
        from twinbus.pairing.sending.receipt import NamespaceSide, SendReceipt

        began = monotonic()
        ids = tuple(str(each.message_id) for each in (message if isinstance(message, list) else [message]))
        try:
            self._link.send(message, self._attempt_s)
        except LinkFailed as error:
            in_doubt = len(ids) if error.failure.in_doubt else 0
            receipt = SendReceipt(
                self._link.entity, ids, NamespaceSide.PRIMARY, 0, (), 1, in_doubt, monotonic() - began
            )
            raise SendError(str(error.failure), receipt) from None
        return SendReceipt(self._link.entity, ids, NamespaceSide.PRIMARY, len(ids), seconds=monotonic() - began)


@contextlib.contextmanager
def through_pair(
    primary: Namespace, options: SendAvailabilityPairedNamespaceOptions, entity: str
) -> Iterator[SendPath]:
    """To the primary, or to the backlog while the entity is down there; raises `TwinbusError` if they are no pair."""
    from twinbus.client.sync.client import PairedServiceBusClient

    with PairedServiceBusClient(primary, options) as bus, bus.get_queue_sender(entity) as sender:
        yield _Paired(sender)


class _Paired:
    def __init__(self, sender: PairedServiceBusSender) -> None:
        self._sender = sender

    def send(self, message: ServiceBusMessage | list[ServiceBusMessage]) -> SendReceipt:
        from twinbus.client.sdk.failures import describe
        from twinbus.pairing.sending.receipt import receipt_of

        try:
            return self._sender.send_messages(message)
        except TwinbusError as error:
            raise _with_receipt(error, receipt_of(error)) from None
        except Exception as error:  # what the official SDK raises while nothing is failed over
            raise SendError(str(describe(error, sending=False)), receipt_of(error)) from None


def _with_receipt(error: TwinbusError, receipt: Any) -> SendError:
    return error if isinstance(error, SendError) else SendError(str(error), receipt)


COUNT_MAX = 10_000_000
NUMBER = "{n}"
"""Stands for the number of a message, where one description makes many."""
_INT32 = 2**31
"""The official SDK sends whole numbers as AMQP int."""
STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class BodySource:
    """Where bodies come from: an argument, a file as a whole, or lines."""

    body: str | None
    file: Path | None
    by_lines: bool
    count: int = 1
    """How often each body is sent."""

    def __post_init__(self) -> None:
        if self.body is not None and (self.file is not None or self.by_lines):
            raise OptionsError("the body is given twice: as an argument, or with --file or --lines, not both")
        check_range("--repeat", self.count, 1, COUNT_MAX)
        if self.body is None and self.file is None and not self.by_lines and sys.stdin.isatty():
            raise OptionsError("what is to be sent? give a body, or --file FILE, or lines on the standard input")
        if self.file is not None and self.file != STDIN and not self.file.is_file():
            raise OptionsError(f"--file {self.file} is not a readable file")

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
class MessageTemplate:
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
            raise OptionsError(f"the message cannot be created: {error}") from None

    def _numbered(self, text: str | None, number: int) -> str | None:
        return text.replace(NUMBER, str(number)) if text is not None and self.is_numbered else text


def parse_property(text: str) -> tuple[str, Any]:
    """`name=text`, or `name:=5` and `name:=true`; raises `OptionsError`."""
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
