"""Whatever goes wrong meanwhile: once it stops, everything comes home, and what came twice was counted."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from pump_harness import PumpHarness, id_of
from seeds import examples

from twinbus.amqp.codec.outcomes import Error
from twinbus.transport.failures import unreachable

PATHS = ["a", "b", "c"]
CONDITIONS = ["amqp:internal-error", "com.microsoft:server-busy", "amqp:not-found", "amqp:resource-limit-exceeded"]
TROUBLES = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(PATHS), st.integers(1, 30)),
    st.tuples(st.just("break"), st.sampled_from(PATHS), st.sampled_from(CONDITIONS)),
    st.tuples(st.just("hush"), st.sampled_from(PATHS), st.just(0)),
    st.tuples(st.just("unlink"), st.sampled_from(PATHS), st.just(0)),
    st.tuples(st.just("mend"), st.sampled_from(PATHS), st.just(0)),
    st.tuples(st.just("cut"), st.sampled_from(PATHS), st.just(0)),
    st.tuples(st.just("lose queue"), st.just(""), st.integers(0, 1)),
    st.tuples(st.just("pause"), st.just(""), st.just(0)),
    st.tuples(st.just("resume"), st.just(""), st.just(0)),
    st.tuples(st.just("wait"), st.just(""), st.sampled_from([0, 1, 7, 40])),
)


class TroubledPumpHarness(PumpHarness):
    def __init__(self) -> None:
        super().__init__(queues=2, prefetch=20, attempt_s=10.0)
        self.put_ids: list[str] = []

    def meet(self, what: str, where: str, number: int | str) -> None:
        match what:
            case "put":
                for _ in range(int(number)):
                    name = f"m{len(self.put_ids)}"
                    self.put_ids.append(name)
                    self.put(where, name, queue=len(self.put_ids) % 2)
            case "break":
                self.broken[where] = Error(str(number), "no")
            case "hush":
                self.silent.add(where)
            case "unlink":
                self.unlinkable.add(where)
            case "cut":
                self.pump.destination_failed(where, unreachable(ConnectionError("cut"), in_doubt=True), self.now_ms)
            case "mend":
                self.mend(where)
            case "lose queue":
                self.lose(int(number))
            case "pause":
                self.pump.pause()
            case "resume":
                self.pump.resume()
        self.run(float(number) if what == "wait" else 0.05)

    def mend(self, where: str) -> None:
        self.broken.pop(where, None)
        self.silent.discard(where)
        self.unlinkable.discard(where)

    def lose(self, index: int) -> None:
        """The link goes; its locks end at once, to make it short."""
        queue = self.queues[index]
        self.pump.queue_lost(index)
        queue.waiting.extendleft(reversed(queue.lent.values()))
        queue.lent.clear()
        queue.credit = 0
        self.pump.queue_attached(index, self.now_ms)


@given(st.lists(TROUBLES, max_size=25))
@settings(max_examples=examples(120), deadline=None)
def test_once_troubles_stop_everything_comes_home(troubles: list[tuple[str, str, int | str]]) -> None:
    harness = TroubledPumpHarness()
    for trouble in troubles:
        harness.meet(*trouble)
    for path in PATHS:
        harness.mend(path)
    harness.pump.resume()
    harness.run(120)
    counts = Counter(id_of(message) for messages in harness.home.values() for message in messages)
    assert sorted(counts) == sorted(harness.put_ids), "nothing is lost and nothing is invented"
    tally = harness.pump.counts
    assert sum(counts.values()) - len(counts) <= tally.repeated + tally.in_doubt, "what came twice was counted"
    assert harness.left == 0
    assert harness.pump.is_idle
    assert all(queue.dead == [] for queue in harness.queues)
