"""How a spool is emptied: home if that is possible, else to the backlog, else not at all (X4)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pump_harness import PumpHarness, backlogged, id_of, plain, with_ttl
from seeds import examples

from twinbus.amqp.codec.outcomes import Error
from twinbus.amqp.codec.types import Timestamp
from twinbus.pairing.backlog.envelope import SCHEDULE_ANNOTATION, open_envelope, read_aliases
from twinbus.syphon.options import SyphonOptions
from twinbus.syphon.pump import dead_letter_reasons as reasons
from twinbus.syphon.pump.spool_pump import SpoolPump
from twinbus.transport.failures import unreachable

DOWN = Error("amqp:internal-error", "out of order")
BUSY = Error("com.microsoft:server-busy", "wait 10 seconds")
WRONG = Error("com.microsoft:argument-error", "never")
GONE = unreachable(ConnectionRefusedError("refused"))
BACKLOG = [f"contoso/x-servicebus-transfer/{index}" for index in range(3)]
MINUTE_MS = 60_000


class SpoolHarness(PumpHarness):
    """The queues are those of a spool; the secondary has three backlog queues."""

    pump: SpoolPump

    def __init__(self, queues: int = 1, detours: int = 3, **wishes: Any) -> None:
        self._detour_count = detours
        self.unreachable: set[str] = set()
        """Destinations that nobody can connect to."""
        super().__init__(queues, **wishes)

    def make_pump(self, paths: list[str], options: SyphonOptions) -> SpoolPump:
        return SpoolPump(paths, options, self.now_ms, detours=BACKLOG[: self._detour_count])

    def _open(self, path: str) -> None:
        if path in self.unreachable:
            self.opened.append(path)
            self.pump.destination_failed(path, GONE, self.now_ms)
        else:
            super()._open(path)

    def take_down_secondary(self) -> None:
        self.unreachable |= {*BACKLOG}

    def bring_up_secondary(self) -> None:
        self.unreachable -= {*BACKLOG}

    @property
    def in_backlog(self) -> list[bytes]:
        return [message for path in BACKLOG for message in self.home.get(path, [])]


def test_messages_go_home_without_their_envelopes_if_they_can() -> None:
    harness = SpoolHarness()
    harness.put("orders", "m1", b"body")
    harness.run()
    assert harness.home == {"orders": [plain("m1", b"body")]}
    assert harness.left == 0
    assert (harness.pump.counts.moved, harness.pump.counts.to_backlog) == (1, 0)


def test_messages_of_an_entity_that_is_down_go_to_one_backlog_queue_in_their_envelopes() -> None:
    harness = SpoolHarness()
    harness.unreachable.add("orders")
    for number in range(20):
        harness.put("orders", f"m{number}")
    harness.put("invoices", "i1")
    harness.run(5)
    assert harness.ids_at("invoices") == ["i1"]
    (path,) = [path for path in BACKLOG if path in harness.home]
    assert harness.ids_at(path) == [f"m{number}" for number in range(20)]
    assert harness.home[path][3] == backlogged("orders", "m3"), "as the sender would have put it there"
    assert harness.left == 0
    assert harness.pump.counts.to_backlog == 20


def test_a_refused_batch_of_one_message_takes_the_detour_too() -> None:
    harness = SpoolHarness()
    harness.broken["orders"] = DOWN
    harness.put("orders", "m1")
    harness.run(5)
    assert [id_of(message) for message in harness.in_backlog] == ["m1"]


def test_with_both_down_everything_stays_and_is_not_tried_without_pause() -> None:
    harness = SpoolHarness()
    harness.unreachable.add("orders")
    harness.take_down_secondary()
    for number in range(50):
        harness.put("orders", f"m{number}")
    harness.run(300)
    assert harness.left == 50
    assert harness.home == {}
    tries = [path for path in harness.opened if path in BACKLOG]
    assert 5 <= len(tries) <= 40, "about twice a minute, and one queue stands for all"
    assert harness.pump.is_idle, "what cannot go on is not kept under lock"


def test_whichever_comes_back_first_gets_them() -> None:
    for first in ("primary", "secondary"):
        harness = SpoolHarness()
        harness.unreachable.add("orders")
        harness.take_down_secondary()
        harness.put("orders", "m1")
        harness.run(60)
        if first == "primary":
            harness.unreachable.discard("orders")
        else:
            harness.bring_up_secondary()
        harness.run(60)
        assert (harness.ids_at("orders") == ["m1"]) == (first == "primary")
        assert [id_of(message) for message in harness.in_backlog] == (["m1"] if first == "secondary" else [])
        assert harness.left == 0


def test_who_knows_that_a_namespace_is_back_need_not_wait_for_a_rest_to_end() -> None:
    harness = SpoolHarness(backoff_s=(1.0, 600.0))
    harness.unreachable.add("orders")
    harness.take_down_secondary()
    harness.put("orders", "m1")
    harness.run(2_000)
    harness.unreachable.discard("orders")
    harness.pump.wake()
    harness.run(1)
    assert harness.ids_at("orders") == ["m1"]


def test_an_entity_that_is_busy_is_waited_for() -> None:
    harness = SpoolHarness()
    harness.broken["orders"] = BUSY
    harness.put("orders", "m1")
    harness.run(8)
    assert harness.in_backlog == []
    del harness.broken["orders"]
    harness.run(20)
    assert harness.ids_at("orders") == ["m1"]


def test_a_backlog_queue_that_fails_alone_is_replaced_by_another() -> None:
    harness = SpoolHarness()
    harness.unreachable.add("orders")
    harness.put("orders", "m1")
    harness.run(3)
    (first,) = [path for path in BACKLOG if path in harness.home]
    harness.broken[first] = Error("amqp:resource-limit-exceeded", "full")
    harness.put("orders", "m2")
    harness.run(5)
    others = [id_of(message) for path in BACKLOG if path != first for message in harness.home.get(path, [])]
    assert others == ["m2"]


def test_what_is_left_of_the_time_to_live_goes_on_and_no_more() -> None:
    harness = SpoolHarness()
    harness.unreachable.add("orders")
    harness.take_down_secondary()
    harness.put("orders", "m1", **with_ttl(10 * MINUTE_MS))
    harness.run(240)
    harness.bring_up_secondary()
    harness.run(60)
    (message,) = harness.in_backlog
    aliases = read_aliases(message)
    assert aliases.ttl_ms is not None
    assert 5 * MINUTE_MS <= aliases.ttl_ms <= 6 * MINUTE_MS
    assert aliases.path == "orders"
    assert open_envelope(message).encoded.startswith(plain("m1", **with_ttl(aliases.ttl_ms))[:8])


def test_a_schedule_that_is_still_to_come_keeps_its_whole_time_to_live() -> None:
    harness = SpoolHarness()
    harness.unreachable.add("orders")
    due = Timestamp(harness.now_ms + 60 * MINUTE_MS)
    harness.put("orders", "m1", annotations={SCHEDULE_ANNOTATION: due}, **with_ttl(5 * MINUTE_MS))
    harness.run(5)
    (message,) = harness.in_backlog
    assert (read_aliases(message).due_at_ms, read_aliases(message).ttl_ms) == (due, 5 * MINUTE_MS)


def test_a_message_that_expired_in_the_spool_goes_to_its_dead_letters() -> None:
    harness = SpoolHarness()
    harness.unreachable.add("orders")
    harness.take_down_secondary()
    harness.put("orders", "m1", **with_ttl(MINUTE_MS))
    harness.run(120)
    harness.bring_up_secondary()
    harness.run(60)
    assert harness.in_backlog == []
    ((_, notes),) = harness.queues[0].dead
    assert notes["DeadLetterReason"] == reasons.EXPIRED


def test_poison_is_put_aside_and_the_others_go_home() -> None:
    harness = SpoolHarness()
    harness.refused_ids["bad"] = WRONG
    for name in ("m1", "bad", "m2"):
        harness.put("orders", name)
    harness.run(5)
    assert sorted(harness.ids_at("orders")) == ["m1", "m2"]
    ((_, notes),) = harness.queues[0].dead
    assert notes["DeadLetterReason"] == reasons.REFUSED


def test_a_message_that_only_the_backlog_refuses_stays_until_it_can_go_home() -> None:
    harness = SpoolHarness()
    harness.unreachable.add("orders")
    harness.refused_ids["bad"] = WRONG
    harness.put("orders", "bad")
    harness.run(100)
    assert harness.left == 1
    assert harness.queues[0].dead == []
    del harness.refused_ids["bad"]
    harness.unreachable.discard("orders")
    harness.run(60)
    assert harness.ids_at("orders") == ["bad"]


def test_a_backlog_queue_that_does_not_answer_leaves_one_copy_in_doubt_and_not_one_in_each() -> None:
    harness = SpoolHarness(attempt_s=5)
    harness.unreachable.add("orders")
    harness.silent |= {*BACKLOG}
    harness.put("orders", "m1")
    harness.run(5.5)
    assert len(harness.sends) == 1
    assert harness.pump.counts.in_doubt == 1
    assert harness.left == 1


def test_without_a_backlog_queue_they_stay_until_one_is_known() -> None:
    harness = SpoolHarness(detours=0)
    harness.unreachable.add("orders")
    harness.put("orders", "m1")
    harness.run(60)
    assert harness.left == 1
    harness.pump.use_detours(BACKLOG[:1])
    harness.run(60)
    assert [id_of(message) for message in harness.in_backlog] == ["m1"]


def test_a_message_for_a_backlog_queue_itself_is_put_aside() -> None:
    harness = SpoolHarness()
    harness.put(BACKLOG[0], "m1")
    harness.run(5)
    assert harness.home == {}
    ((_, notes),) = harness.queues[0].dead
    assert notes["DeadLetterReason"] == reasons.MALFORMED


def test_a_pause_is_no_reason_for_the_detour() -> None:
    harness = SpoolHarness()
    harness.unreachable.add("orders")
    harness.pump.pause()
    harness.put("orders", "m1")
    harness.run(10)
    assert harness.in_backlog == []
    harness.pump.resume()
    harness.run(10)
    assert [id_of(message) for message in harness.in_backlog] == ["m1"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "home down", "home up", "backlog down", "backlog up", "silent", "wake"]),
            st.sampled_from(["orders", "invoices"]),
            st.integers(0, 40),
        ),
        max_size=30,
    )
)
@settings(max_examples=examples(60), deadline=None)
def test_whatever_goes_up_and_down_every_message_is_somewhere_and_goes_on_in_the_end(
    steps: list[tuple[str, str, int]],
) -> None:
    harness = SpoolHarness(queues=2, attempt_s=5, backoff_s=(1.0, 10.0))
    names: list[str] = []
    for what, entity, seconds in steps:
        match what:
            case "put":
                names.append(f"m{len(names)}")
                harness.put(entity, names[-1], queue=entity == "orders")
            case "home down":
                harness.unreachable.add(entity)
            case "home up":
                harness.unreachable.discard(entity)
            case "backlog down":
                harness.take_down_secondary()
            case "backlog up":
                harness.bring_up_secondary()
            case "silent":
                harness.silent ^= {entity}
            case "wake":
                harness.pump.wake()
        harness.run(seconds)
        stored = [id_of(message) for messages in harness.home.values() for message in messages]
        doubtful = len(harness.unanswered)
        assert len(set(stored)) + harness.left >= len(names)
        assert len(stored) - len(set(stored)) <= doubtful
    harness.unreachable.clear()
    harness.silent.clear()
    harness.run(200)
    stored = [id_of(message) for messages in harness.home.values() for message in messages]
    assert sorted(set(stored)) == sorted(names)
    assert harness.left == 0
    for path in BACKLOG:
        for message in harness.home.get(path, []):
            assert read_aliases(message).path in ("orders", "invoices")
