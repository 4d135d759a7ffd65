"""What a message wears on the detour: four application properties instead of fields that would act in the backlog.

| moves from                                           | to application property             |
|------------------------------------------------------|-------------------------------------|
| session id: properties, group-id                     | `x-ms-sessionid`, string            |
| time to live: header, ttl                            | `x-ms-timetolive`, ulong (ms)       |
| schedule: annotation `x-opt-scheduled-enqueue-time`  | `x-ms-scheduledenqueuetimeutc`, timestamp |
| the destination                                      | `x-ms-path`, string                 |

Only what is set moves. Everything else, the body and the types of other application properties included, keeps its
bytes: an encoded message is cut and joined, never decoded.

Two fields deserve a word:

* absolute-expiry-time goes with the time to live, because the official clients derive it from that and some of them
  read it as the time to live (expiry - creation, stronger than the header). It comes back only with the full time to
  live; with what is left of it the number would be wrong, whichever way it is read, and the header alone decides.
* the partition key stays. A backlog queue is made without partitions and sessions and merely keeps it; one that an
  administrator made with partitions puts equal keys together, which does no harm. A key that equals the session id (the
  service forces that when both are set) must stay too: without the session id nothing contradicts it on the way, and at
  home the primary wants both again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from twinbus.amqp.codec.decoding import after_descriptor, decode, item_offsets
from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.types import Timestamp, UInt, ULong, Value
from twinbus.amqp.message.message_builder import (
    APPLICATION_PROPERTIES,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    compound_section,
)
from twinbus.amqp.message.rewriting import edit_map, edit_properties, pair_offsets, text_key
from twinbus.amqp.message.sections import (
    Layout,
    PropertyField,
    Span,
    read_annotation,
    read_header,
    read_properties,
    walk,
)
from twinbus.errors import EnvelopeError, ReservedProperty

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_TIME: Final = "x-ms-scheduledenqueuetimeutc"
RESERVED_NAMES: Final = (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_TIME)

SCHEDULE_ANNOTATION: Final = "x-opt-scheduled-enqueue-time"
_LOCK_TOKEN: Final = "x-opt-lock-token"  # noqa: S105 - the name of an annotation, not a secret
_SERVICE_ANNOTATIONS: Final = (
    "x-opt-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-enqueue-sequence-number",
    "x-opt-message-state",
    "x-opt-locked-until",
    "x-opt-deadletter-source",
    "x-opt-partition-id",
)
"""What the secondary says of its own copy of the message; at home it would be untrue."""

_HEADER_TTL, _HEADER_DELIVERY_COUNT = 2, 4
_TTL_MAX_MS = 2**32 - 1
_NULL = b"\x40"
_RESERVED_KEYS = {name.encode(): name for name in RESERVED_NAMES}
_MOVING_FIELDS = (int(PropertyField.GROUP_ID),)


class Aliases(NamedTuple):
    """What an addressed message says of itself; None is what its sender did not set."""

    path: str
    session_id: str | None = None
    ttl_ms: int | None = None
    due_at_ms: int | None = None
    """When it asks to be enqueued at home."""


class Homeward(NamedTuple):
    """A message as the application sent it, and the entity it is for."""

    path: str
    encoded: bytes


def reserved_names_in(encoded: bytes) -> tuple[str, ...]:
    """The application properties of the message that the detour needs for itself; usually none."""
    return _reserved(encoded, walk(encoded).application_properties)


def _reserved(encoded: bytes, span: Span | None) -> tuple[str, ...]:
    if span is None or encoded.find(b"x-ms-", span[0], span[1]) < 0:
        return ()
    offsets = pair_offsets(encoded, span)
    keys = {text_key(encoded, key, value) for key, value in zip(offsets[:-1:2], offsets[1::2], strict=True)}
    return tuple([name for key, name in _RESERVED_KEYS.items() if key in keys])


def address(encoded: bytes, path: str) -> bytes:
    """The message as it goes into a backlog queue, bound for the entity at `path`.

    Raises `ReservedProperty` if it uses one of the names, `EnvelopeError` if a value that has to move has another type
    than the service knows for it.
    """
    layout = walk(encoded)
    if names := _reserved(encoded, layout.application_properties):
        raise ReservedProperty(names)
    moving = _moving(encoded, layout, path)
    fields: dict[PropertyField, Value] = {}
    if moving.session_id is not None:
        fields[PropertyField.GROUP_ID] = None
    if moving.ttl_ms is not None:
        fields[PropertyField.ABSOLUTE_EXPIRY_TIME] = None
    return _joined(
        encoded,
        layout,
        header={} if moving.ttl_ms is None else {_HEADER_TTL: _NULL},
        drop_annotations=() if moving.due_at_ms is None else (SCHEDULE_ANNOTATION,),
        fields=fields,
        applications=_written(moving),
    )


def _moving(encoded: bytes, layout: Layout, path: str) -> Aliases:
    (session_id,) = read_properties(encoded, layout, _MOVING_FIELDS)
    if session_id is not None and type(session_id) is not str:
        raise EnvelopeError(f"the session id (group-id) must be a string, got {_kind(session_id)}")
    due_at = read_annotation(encoded, layout, SCHEDULE_ANNOTATION) if layout.message_annotations else None
    if due_at is not None and not isinstance(due_at, Timestamp):
        raise EnvelopeError(f"the annotation {SCHEDULE_ANNOTATION} must be a timestamp, got {_kind(due_at)}")
    ttl_ms = read_header(encoded, layout).ttl_ms if layout.header else None
    return Aliases(path, session_id, ttl_ms, due_at)


def _written(aliases: Aliases) -> dict[str, Value]:
    entries: dict[str, Value] = {}
    if aliases.session_id is not None:
        entries[SESSION_ID] = aliases.session_id
    if aliases.ttl_ms is not None:
        entries[TIME_TO_LIVE] = ULong(aliases.ttl_ms)
    if aliases.due_at_ms is not None:
        entries[SCHEDULED_TIME] = Timestamp(aliases.due_at_ms)
    return entries | {PATH: aliases.path}


# --- the way home ----------------------------------------------------------------------------------

_ALIAS_TYPES: Final = {PATH: (str, "string"), SESSION_ID: (str, "string"), TIME_TO_LIVE: (ULong, "ulong"),
                       SCHEDULED_TIME: (Timestamp, "timestamp")}  # fmt: skip


def read_aliases(encoded: bytes) -> Aliases:
    """Where the message belongs. Raises `EnvelopeError` naming the alias that is missing or of a wrong type.

    Like everything that looks into bytes it raises `DecodeError` if they are no message.
    """
    return _read_aliases(encoded, walk(encoded))


def _read_aliases(encoded: bytes, layout: Layout) -> Aliases:
    found = _reserved_entries(encoded, layout.application_properties)
    for name, (kind, amqp_name) in _ALIAS_TYPES.items():
        value = found.get(name)
        if value is not None and type(value) is not kind:
            raise EnvelopeError(f"the application property {name} must be a {amqp_name}, got {_kind(value)}")
    if not found.get(PATH):
        raise EnvelopeError(f"the application property {PATH} is missing: nothing says where the message belongs")
    return Aliases(found[PATH], found.get(SESSION_ID), found.get(TIME_TO_LIVE), found.get(SCHEDULED_TIME))


def _reserved_entries(encoded: bytes, span: Span | None) -> dict[str, Value]:
    """The aliases, decoded; what the application wrote beside them is none of our business."""
    offsets = pair_offsets(encoded, span) if span is not None else [0]
    found: dict[str, Value] = {}
    for key, value in zip(offsets[:-1:2], offsets[1::2], strict=True):
        name = _RESERVED_KEYS.get(text_key(encoded, key, value) or b"")
        if name is not None:
            found[name] = decode(encoded, value)[0]
    return found


def open_envelope(encoded: bytes, *, ttl_left_ms: int | None = None, aliases: Aliases | None = None) -> Homeward:
    """The message as it was before `address`, without what the secondary added, and where it belongs.

    `ttl_left_ms` is the time to live it goes home with if it had one; None: all of it again. `aliases` are those of
    this very message, if they have been read already. Raises like `read_aliases`.
    """
    layout = walk(encoded)
    found = _read_aliases(encoded, layout) if aliases is None else aliases
    ttl_ms = found.ttl_ms if found.ttl_ms is None or ttl_left_ms is None else max(0, ttl_left_ms)
    home = _joined(
        encoded,
        layout,
        header=_home_header(encoded, layout, ttl_ms),
        drop_delivery_annotations=(_LOCK_TOKEN,),
        annotations={} if found.due_at_ms is None else {SCHEDULE_ANNOTATION: Timestamp(found.due_at_ms)},
        drop_annotations=_SERVICE_ANNOTATIONS,
        fields=_home_fields(encoded, layout, found, ttl_ms if ttl_left_ms is None else None),
        drop_applications=RESERVED_NAMES,
    )
    return Homeward(found.path, home)


def forward_envelope(encoded: bytes, *, ttl_left_ms: int | None = None) -> bytes:
    """The message as it goes on to another backlog queue: in its envelope, without what the first queue added.

    `ttl_left_ms`: what is left of its time to live, which begins anew there; None: all of it, or it had none.
    """
    layout = walk(encoded)
    return _joined(
        encoded,
        layout,
        header=_home_header(encoded, layout, None),
        drop_delivery_annotations=(_LOCK_TOKEN,),
        drop_annotations=_SERVICE_ANNOTATIONS,
        applications={} if ttl_left_ms is None else {TIME_TO_LIVE: ULong(ttl_left_ms)},
    )


def _home_header(encoded: bytes, layout: Layout, ttl_ms: int | None) -> dict[int, bytes]:
    changed = {}
    if ttl_ms is not None:
        changed[_HEADER_TTL] = encode(UInt(min(ttl_ms, _TTL_MAX_MS)))  # the alias is wider than the header's field
    if layout.header is not None and read_header(encoded, layout).delivery_count:
        changed[_HEADER_DELIVERY_COUNT] = _NULL  # counted in the backlog
    return changed


def _home_fields(encoded: bytes, layout: Layout, found: Aliases, full_ttl_ms: int | None) -> dict[PropertyField, Value]:
    fields: dict[PropertyField, Value] = {}
    if found.session_id is not None:
        fields[PropertyField.GROUP_ID] = found.session_id
    if full_ttl_ms is not None:
        (created_at,) = read_properties(encoded, layout, (int(PropertyField.CREATION_TIME),))
        if isinstance(created_at, Timestamp):
            fields[PropertyField.ABSOLUTE_EXPIRY_TIME] = Timestamp(min(created_at + full_ttl_ms, _EXPIRY_MAX_MS))
    return fields


_EXPIRY_MAX_MS = 253_402_243_199_000  # the last moment that the official clients write: the end of the year 9999


def _kind(value: Value) -> str:
    return type(value).__name__.lower()


# --- cutting and joining ---------------------------------------------------------------------------


_NO_CHANGE: Final[Mapping[Any, Any]] = MappingProxyType({})


def _joined(
    encoded: bytes,
    layout: Layout,
    *,
    header: Mapping[int, bytes] = _NO_CHANGE,
    drop_delivery_annotations: tuple[str, ...] = (),
    annotations: Mapping[str, Value] = _NO_CHANGE,
    drop_annotations: tuple[str, ...] = (),
    fields: Mapping[PropertyField, Value] = _NO_CHANGE,
    applications: Mapping[str, Value] = _NO_CHANGE,
    drop_applications: tuple[str, ...] = (),
) -> bytes:
    """The message with these changes. A section in which nothing changes keeps its bytes."""

    def own(span: Span | None) -> bytes:
        return b"" if span is None else encoded[span[0] : span[1]]

    def edited(span: Span | None, code: int, put: Mapping[str, Value], drop: tuple[str, ...]) -> bytes:
        if put or (span is not None and _has_any(encoded, span, drop)):
            return edit_map(encoded, span, code, put, drop)
        return own(span)

    return b"".join(
        (
            _edit_header(encoded, layout.header, header) if header else own(layout.header),
            edited(layout.delivery_annotations, DELIVERY_ANNOTATIONS, {}, drop_delivery_annotations),
            edited(layout.message_annotations, MESSAGE_ANNOTATIONS, annotations, drop_annotations),
            edit_properties(encoded, layout.properties, fields) if fields else own(layout.properties),
            edited(layout.application_properties, APPLICATION_PROPERTIES, applications, drop_applications),
            own(layout.body),
            own(layout.footer),
        )
    )


def _has_any(encoded: bytes, span: Span, names: tuple[str, ...]) -> bool:
    return any(encoded.find(name.encode(), span[0], span[1]) >= 0 for name in names)


def _edit_header(encoded: bytes, span: Span | None, put: Mapping[int, bytes]) -> bytes:
    """The header with these encoded fields; the others keep their bytes."""
    offsets = item_offsets(encoded, after_descriptor(encoded, span[0])) if span is not None else [0]
    items = [encoded[start:end] for start, end in pairwise(offsets)]
    items += [_NULL] * (max(put) + 1 - len(items))
    for field, value in put.items():
        items[field] = value
    return compound_section(HEADER, 0xC0, len(items), b"".join(items))
