"""Whatever happens to links, flows and time: every send is answered once, none is forgotten, none overtakes another."""

from __future__ import annotations

from fake_link import rejected
from hypothesis import example, given
from hypothesis import strategies as st
from proxy_routing_scene import EntityScene

from twinbus.broker.operations import Refused
from twinbus.errors import ConditionError
from twinbus.pairing.events import FailoverForced, MarkedHealthy
from twinbus.pairing.sending.failure import Failure, FailureKind

DOWN = Failure(FailureKind.UNREACHABLE, "connection refused")
REFUSED = Refused(ConditionError("com.microsoft:timeout", "because"))
STEPS = (
    *("send", "send", "send", "batch", "open", "refuse", "store", "reject", "busy", "lose", "wait", "look"),
    *("end flow", "end flow", "let pass", "fail over", "mark healthy", "credit", "flow opens"),
)
IN_ORDER = ("send", "send", "open", "flow opens", "store", "lose", "refuse", "end flow", "wait", "look", "credit")


class History:
    """Takes one step after the other, as far as it is possible just then."""

    def __init__(self, credit: int) -> None:
        self.scene = EntityScene(batch_bytes=1_000)
        self.credit = credit
        self.answered: set[tuple[int, int]] = set()
        """Link and delivery."""

    def take(self, step: str, choice: int) -> None:
        scene = self.scene
        match step:
            case "send":
                scene.send(f"{choice}".encode())
            case "batch":
                scene.send(*[b"\x00\x53\x75\xb0\x00\x00\x01\x90" + b"x" * 400] * 3)
            case "open" if scene.opening:
                scene.open(self.credit)
            case "flow opens" if scene.sends.usable_link(scene.entity.epoch) is None:
                scene.open_for_flow(self.credit)
            case "refuse" if scene.opening:
                scene.refuse(DOWN)
            case "store":
                self._answer(choice, None)
            case "reject":
                self._answer(choice, "amqp:internal-error")
            case "busy":
                self._answer(choice, "com.microsoft:server-busy")
            case "lose" if scene.links:
                scene.links[choice % len(scene.links)][1].lost(DOWN, scene.now)
            case "credit" if scene.links:
                link, window = scene.links[-1]
                link.credit += 2
                window.fill(scene.now)
            case "wait":
                scene.now += choice
            case "look":
                for _, window in scene.links:
                    window.look(scene.now)
            case "end flow" if scene.flows:
                scene.end_flow(choice % len(scene.flows), *(() if choice % 3 else (REFUSED, 0)))
            case "let pass" if scene.flows:
                scene.sends.let_pass(scene.flows[choice % len(scene.flows)][0], scene.now)
            case "fail over":
                scene.pair.feed(scene.entity, FailoverForced(scene.now, scene.entity.epoch, "drill"))
            case "mark healthy":
                scene.pair.feed(scene.entity, MarkedHealthy(scene.now, scene.entity.epoch))

    def _answer(self, choice: int, condition: str | None) -> None:
        open_ones = [
            (at, number)
            for at, (link, window) in enumerate(self.scene.links)
            for number in range(len(link.sent))
            if (at, number) not in self.answered and not window.has_ended
        ]
        if open_ones:
            at, number = open_ones[choice % len(open_ones)]
            self.answered.add((at, number))
            link, window = self.scene.links[at]
            if condition is None:
                link.answer(window, self.scene.now, number)
            else:
                link.answer(window, self.scene.now, number, outcome=rejected(condition))

    def end(self) -> None:
        """Everything is answered at last."""
        for _ in range(10_000):
            if self.scene.opening:
                self.scene.refuse(DOWN)
            elif self.scene.flows:
                self.scene.end_flow()
            elif any(window.count for _, window in self.scene.links):
                for _, window in self.scene.links:
                    window.lost(DOWN, self.scene.now)
            else:
                return
        raise AssertionError("it has no end")


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7)), min_size=5, max_size=60),
    st.sampled_from([0, 1, 3, 1_000]),
)
def test_every_send_is_answered_once_and_nothing_stays_counted(steps: list[tuple[str, int]], credit: int) -> None:
    history = History(credit)
    for step, choice in steps:
        history.take(step, choice)
        assert history.scene.load.bytes >= 0
    history.end()
    assert {name: len(replies) for name, replies in history.scene.replies.items() if len(replies) != 1} == {}
    assert history.scene.load.bytes == 0


@given(st.lists(st.sampled_from(IN_ORDER), min_size=5, max_size=60), st.sampled_from([1, 3, 1_000]))
@example(["send", "send", "open", "lose", "send", "end flow", "open"], 1_000)
@example(["send", "flow opens", "send", "open"], 1_000)
def test_messages_go_out_in_their_order_and_none_overtakes_one_that_is_tried_again(
    steps: list[str], credit: int
) -> None:
    history = History(credit)
    scene, last = history.scene, -1
    for number, step in enumerate(steps):
        before = {at: len(link.sent) for at, (link, _) in enumerate(scene.links)}
        if step == "send":
            scene.send(f"{number}".encode())
        elif step == "end flow":
            if scene.flows:
                scene.end_flow()
        else:
            history.take(step, 0)
        retried = [int(send.arrivals[0].payload) for send, _ in scene.flows]
        for at, (link, _) in enumerate(scene.links):
            for payload, _ in link.sent[before.get(at, 0) :]:
                assert last < int(payload) < min(retried, default=len(steps))
                last = int(payload)
