"""The frames of AMQP 1.0 as data, field names as in the specification."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from twinbus.amqp.codec.composites import (
    ANY,
    BINARY,
    BOOLEAN,
    MAP,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    FieldType,
    decode_composite,
    described,
    nested,
)
from twinbus.amqp.codec.outcomes import STATES, DeliveryState, Error
from twinbus.errors import DecodeError

Fields: TypeAlias = dict[Any, Any]

DROPS_PINGS: Final = "twinbus:drops-pings"
"""A capability of our namespaces: they check pings like any other message, then drop them; no receiver gets one."""


class LinkRole(Enum):
    """Which end of a link; the value is the one on the wire."""

    SENDER = False
    RECEIVER = True

    @property
    def other(self) -> LinkRole:
        return LinkRole(not self.value)


def _read_role(value: Any) -> LinkRole:
    if type(value) is not bool:
        raise DecodeError("not a role")
    return LinkRole(value)


_ROLE = FieldType(lambda role: role.value, _read_role)
_STATE = nested(*STATES)


@described(
    0x28, "amqp:source:list",
    STRING, UINT, SYMBOL, UINT, BOOLEAN, MAP, SYMBOL, MAP, ANY, SYMBOLS, SYMBOLS,
    count_min=1,  # an empty list counts as no source in the official Python client
)  # fmt: skip
@dataclass(frozen=True, slots=True)
class Source:
    address: str | None = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Fields | None = None
    distribution_mode: str | None = None
    filter: Fields | None = None
    default_outcome: Any = None
    outcomes: tuple[str, ...] | None = None
    capabilities: tuple[str, ...] | None = None


@described(0x29, "amqp:target:list", STRING, UINT, SYMBOL, UINT, BOOLEAN, MAP, SYMBOLS, count_min=1)
@dataclass(frozen=True, slots=True)
class Target:
    address: str | None = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Fields | None = None
    capabilities: tuple[str, ...] | None = None


@described(0x30, "amqp:coordinator:list", SYMBOLS, count_min=0)
@dataclass(frozen=True, slots=True)
class Coordinator:
    """The target of a link that controls transactions."""

    capabilities: tuple[str, ...] | None = None


@described(0x31, "amqp:declare:list", ANY, count_min=1)
@dataclass(frozen=True, slots=True)
class Declare:
    """Asks a coordinator for a transaction."""

    global_id: Any = None


@described(0x32, "amqp:discharge:list", BINARY, BOOLEAN, count_min=2)
@dataclass(frozen=True, slots=True)
class Discharge:
    """Ends a transaction: what belongs to it happens, or with `fail` does not."""

    txn_id: bytes
    fail: bool = False


@described(
    0x10, "amqp:open:list", STRING, STRING, UINT, USHORT, UINT, SYMBOLS, SYMBOLS, SYMBOLS, SYMBOLS, MAP
)  # fmt: skip
@dataclass(frozen=True, slots=True)
class Open:
    container_id: str
    hostname: str | None = None
    max_frame_size: int = 2**32 - 1
    channel_max: int = 65_535
    idle_time_out: int | None = None
    outgoing_locales: tuple[str, ...] | None = None
    incoming_locales: tuple[str, ...] | None = None
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Fields | None = None


@described(0x11, "amqp:begin:list", USHORT, UINT, UINT, UINT, UINT, SYMBOLS, SYMBOLS, MAP)
@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    remote_channel: int | None = None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = 2**32 - 1
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Fields | None = None


@described(
    0x12, "amqp:attach:list",
    STRING, UINT, _ROLE, UBYTE, UBYTE, nested(Source), nested(Target, Coordinator), MAP, BOOLEAN, UINT, ULONG,
    SYMBOLS, SYMBOLS, MAP,
)  # fmt: skip
@dataclass(frozen=True, slots=True)
class Attach:
    name: str
    handle: int
    role: LinkRole
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: Fields | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[str, ...] | None = None
    desired_capabilities: tuple[str, ...] | None = None
    properties: Fields | None = None


@described(0x13, "amqp:flow:list", UINT, UINT, UINT, UINT, UINT, UINT, UINT, UINT, BOOLEAN, BOOLEAN, MAP)
@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    next_incoming_id: int | None = None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Fields | None = None


@described(
    0x14, "amqp:transfer:list", UINT, UINT, BINARY, UINT, BOOLEAN, BOOLEAN, UBYTE, _STATE, BOOLEAN, BOOLEAN, BOOLEAN
)  # fmt: skip
@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer without its payload; the engine itself uses `frame_codec`, which builds no object."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: DeliveryState | None = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@described(0x15, "amqp:disposition:list", _ROLE, UINT, UINT, BOOLEAN, _STATE, BOOLEAN)
@dataclass(frozen=True, slots=True)
class Disposition:
    role: LinkRole
    first: int
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False


@described(0x16, "amqp:detach:list", UINT, BOOLEAN, nested(Error))
@dataclass(frozen=True, slots=True)
class Detach:
    handle: int
    closed: bool = False
    error: Error | None = None


@described(0x17, "amqp:end:list", nested(Error))
@dataclass(frozen=True, slots=True)
class End:
    error: Error | None = None


@described(0x18, "amqp:close:list", nested(Error))
@dataclass(frozen=True, slots=True)
class Close:
    error: Error | None = None


Performative: TypeAlias = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
PERFORMATIVES = (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)


def decode_performative(body: bytes) -> Performative:
    """The performative that is the whole of `body`; DecodeError for anything else."""
    found = decode_composite(body)
    if not isinstance(found, PERFORMATIVES):
        raise DecodeError(f"{type(found).__name__.lower()} is not a performative")
    return found
