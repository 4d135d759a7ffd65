"""Performatives, outcomes and errors on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from twinbus.amqp.codec.composites import decode_composite, encode_composite
from twinbus.amqp.codec.encoding import encode
from twinbus.amqp.codec.frame_codec import disposition_frame, read_disposition
from twinbus.amqp.codec.outcomes import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Error,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
)
from twinbus.amqp.codec.performatives import (
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    LinkRole,
    Open,
    Source,
    Target,
    Transfer,
    decode_performative,
)
from twinbus.amqp.codec.types import Described, Symbol, UInt, ULong
from twinbus.errors import DecodeError

ERROR = Error("amqp:not-found", "no such queue", {Symbol("a"): 1})
SAMPLES: list[Any] = [
    Open("c", "host", 1024, 7, 60_000, None, None, ("x",), ("y", "z"), {Symbol("product"): "p"}),
    Begin(remote_channel=3, next_outgoing_id=1, incoming_window=2, outgoing_window=3),
    Attach(
        "l", 4, LinkRole.RECEIVER, 0, 1, Source("q", filter={Symbol("f"): Described(Symbol("d"), "v")}),
        Target("t", capabilities=("c",)), None, False, 0, 262_144, properties={Symbol("k"): UInt(1)},
    ),
    Attach("l", 0, LinkRole.SENDER, target=Coordinator()),
    Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=2, outgoing_window=3, handle=0, drain=True, echo=True),
    Transfer(1, 2, b"tag", 0, True, False, None, Rejected(ERROR), False, True, False),
    Disposition(LinkRole.SENDER, 1, 9, True, Modified(None, True, {Symbol("x"): "y"})),
    Detach(3, True, ERROR),
    End(ERROR),
    Close(),
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_what_was_written_is_read(sample: Any) -> None:
    assert decode_performative(encode_composite(sample)) == sample


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_descriptors_are_small_ulongs(sample: Any) -> None:
    codes = [Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close]
    assert encode_composite(sample)[:3] == bytes((0x00, 0x53, 0x10 + codes.index(type(sample))))


@pytest.mark.parametrize("error", [Error("a:b"), Error("a:b", "text"), Error("a:b", None, {})])
def test_errors_always_have_three_elements(error: Error) -> None:
    assert encode_composite(error)[3:6:2] == b"\xc0\x03"


def test_a_rejection_without_an_error_is_an_empty_list() -> None:
    assert encode_composite(Rejected()) == b"\x00\x53\x25\x45"


@pytest.mark.parametrize("terminus", [Source(), Target()])
def test_a_source_or_target_is_never_an_empty_list(terminus: Source | Target) -> None:
    assert encode_composite(terminus)[3:] == b"\xc0\x02\x01\x40"


def test_omitted_and_null_fields_mean_the_default() -> None:
    short = encode(Described(ULong(0x10), ["c"]))
    nulls = encode(Described(ULong(0x10), ["c", None, None, None, None]))
    assert decode_performative(short) == decode_performative(nulls) == Open("c")


def test_long_and_symbolic_descriptors_are_read() -> None:
    long_form = b"\x00\x80" + (0x18).to_bytes(8, "big") + b"\x45"
    symbolic = encode(Described(Symbol("amqp:close:list"), []))
    assert decode_performative(long_form) == decode_performative(symbolic) == Close()


def test_one_symbol_is_as_good_as_an_array_of_one() -> None:
    body = encode(Described(ULong(0x10), ["c", None, None, None, None, None, None, Symbol("only")]))
    assert decode_performative(body) == Open("c", offered_capabilities=("only",))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([], "lacks container_id"),
        ([1], "container_id"),
        (["c", None, "big"], "max_frame_size"),
        (["c", None, UInt(1), UInt(70_000)], "channel_max"),
        (["c", None, True], "max_frame_size"),
        (["c"] + [None] * 10, "at most 10"),
        (["c", None, None, None, None, {"a": 1}], "outgoing_locales"),
        ({"c": 1}, "list"),
    ],
)
def test_wrong_fields_are_named(fields: Any, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        decode_performative(encode(Described(ULong(0x10), fields)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x40",
        encode(Described(ULong(0x99), [])),
        encode(Described(ULong(0x24), [])),
        encode_composite(Close()) + b"\x40",
        encode(Described(ULong(0x12), ["l", UInt(0), False, None, None, Described(ULong(0x29), [])])),
    ],
    ids=["nothing", "half", "null", "unknown", "an outcome", "something after it", "a target as source"],
)
def test_what_is_no_performative_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_performative(body)


@pytest.mark.parametrize("outcome", [ACCEPTED, RELEASED, Rejected(), Rejected(ERROR), Modified(True, False), None])
@pytest.mark.parametrize("role", LinkRole)
@pytest.mark.parametrize("ids", [(0, 0), (7, 300), (2**32 - 1, 2**32 - 1)])
def test_the_fast_disposition_says_the_same_as_the_slow_one(
    outcome: Outcome | None, role: LinkRole, ids: tuple[int, int]
) -> None:
    fast = disposition_frame(5, role, *ids, outcome, True)[8:]
    assert decode_performative(fast) == Disposition(role, *ids, True, outcome)
    slow = encode_composite(Disposition(role, *ids, True, outcome))
    assert read_disposition(slow) == read_disposition(fast) == (role, *ids, True, outcome)


def test_a_disposition_without_last_names_one_delivery() -> None:
    assert read_disposition(encode_composite(Disposition(LinkRole.SENDER, 5, None, False, Accepted())))[1:3] == (
        5,
        5,
    )


def test_a_disposition_with_a_long_reason_is_written() -> None:
    rejected = Rejected(Error("amqp:not-allowed", "x" * 1000))
    assert read_disposition(disposition_frame(0, LinkRole.SENDER, 1, 1, rejected, True)[8:]).outcome == rejected


def test_a_disposition_whose_list_lies_about_its_size_is_refused() -> None:
    body = bytearray(disposition_frame(0, LinkRole.SENDER, 1, 1, ACCEPTED, True)[8:])
    body[4] += 1
    with pytest.raises(DecodeError):
        read_disposition(bytes(body))


@pytest.mark.parametrize("outcome", [Accepted(), Released(), Received(1, 2), Modified(), Modified(None, False)])
def test_outcomes_keep_what_was_not_said(outcome: Outcome) -> None:
    assert decode_composite(encode_composite(outcome)) == outcome
