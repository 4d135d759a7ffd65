"""Whatever happens to links, locks and destinations: first copies come home in the order of their key, and all do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from ordered_backlog import BUSY, REFUSED, OrderedPumpHarness, name_of
from seeds import examples

from twinbus.amqp.codec.outcomes import ACCEPTED, Error, Outcome, Rejected

DISABLED = Error("com.microsoft:entity-disabled", "for now")
KEYS = [("orders", "a"), ("orders", "b"), ("orders", None), ("other", "a")]
REPLIES: list[Outcome | str] = [ACCEPTED, Rejected(BUSY), Rejected(DISABLED), "silent", "lost", "later"]

puts = st.tuples(st.just("put"), st.integers(0, len(KEYS) - 1), st.integers(1, 6))
gaps = st.tuples(st.just("gap"), st.integers(1, 3), st.just(0))
waits = st.tuples(st.just("wait"), st.sampled_from([0, 0.1, 0.3, 1, 7, 20, 45]), st.just(0))
links = st.tuples(st.just("link"), st.booleans(), st.just(0))
replies = st.tuples(st.just("reply"), st.sampled_from(["orders", "other"]), st.sampled_from(range(len(REPLIES))))
renewals = st.tuples(st.just("renew"), st.booleans(), st.just(0))
refusals = st.tuples(st.just("refuse"), st.integers(0, 60), st.just(0))
pauses = st.tuples(st.just("pause"), st.booleans(), st.just(0))
locks = st.tuples(st.just("lock"), st.integers(1, 4), st.just(0))
answers = st.tuples(st.just("answer"), st.integers(0, 3), st.sampled_from([0, 0, 1, 2]))
often = [puts, puts, waits, waits, replies, answers, locks]
steps = st.lists(st.one_of(*often, links, gaps, renewals, refusals, pauses), min_size=5, max_size=60)


class World:
    def __init__(self, prefetch: int) -> None:
        self.harness = OrderedPumpHarness(prefetch=prefetch, batch_bytes_max=1_800, backoff_s=(0.1, 2), busy_s=0.2)
        self.sent: dict[tuple[str, str | None], list[str]] = {key: [] for key in KEYS}
        self.refused: set[str] = set()
        self.replies = {"orders": 0, "other": 0}
        for path in self.replies:
            self.harness.replies[path] = lambda messages, path=path: self._reply(path, messages)  # type: ignore[misc]

    def _reply(self, path: str, messages: list[bytes]) -> Outcome | str:
        if any(name_of(each)[1] in self.refused for each in messages):
            return Rejected(REFUSED)
        return REPLIES[self.replies[path]]

    def do(self, name: str, what: object, more: int) -> None:
        harness = self.harness
        match name, what:
            case "put", int(index):
                for _ in range(more):
                    message_id = f"m{sum(map(len, self.sent.values()))}"
                    self.sent[KEYS[index]].append(message_id)
                    harness.put(*KEYS[index], message_id, size=300)
            case "gap", int(width):
                harness.next_sequence += width
            case "wait", (int() | float()) as seconds:
                harness.run(seconds)
            case "link", bool(frees):
                harness.lose_link(frees_locks=frees)
                harness.attach()
            case "reply", str(path):
                self.replies[path] = more
            case "renew", bool(works):
                harness.are_locks_renewed = works
            case "refuse", int(number):
                self.refused.add(f"m{number}")
            case "lock", int(count):
                harness.lock_strangely(count)
            case "answer", int(place) if harness.later:
                harness.answer(place % len(harness.later), REPLIES[more])
            case "pause", True:
                harness.pump.pause()
            case "pause", False:
                harness.pump.resume()

    def check_order(self) -> None:
        for (path, session_id), sent in self.sent.items():
            places = [sent.index(name) for name in self.harness.first_copies(path, session_id)]
            assert places == sorted(places)

    def calm_down(self) -> None:
        self.replies = {"orders": 0, "other": 0}
        self.harness.are_locks_renewed = True
        self.harness.later.clear()
        self.harness.pump.resume()
        self.harness.run(400)


@settings(max_examples=examples(100), deadline=None)
@given(steps, st.sampled_from([1, 2, 3, 10, 200]))
def test_first_copies_of_a_key_are_in_order_and_all_come_home(
    script: list[tuple[str, object, int]], window: int
) -> None:
    world = World(window)
    for name, what, more in script:
        world.do(name, what, more)
        world.check_order()
    world.calm_down()
    world.check_order()
    assert not world.harness.stored, "the drain finishes once nothing fails any more"
    for (path, session_id), sent in world.sent.items():
        missing = set(sent) - set(world.harness.first_copies(path, session_id))
        assert missing <= world.refused
    seen = {came.mark for came in world.harness.observer.messages}
    assert len(seen) == sum(map(len, world.sent.values())), "the observer was told of all of them"
