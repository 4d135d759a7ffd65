"""A queue that removes itself: when nobody has used it for long enough, and never before."""

from __future__ import annotations

from collections.abc import Callable

from sim.concern import Asking, Concern, Place, arrival
from sim.invariants import Violation, check
from twinbus.broker.core.commands import CloseReceiver, CreateQueue, OpenReceiver, SendMessages
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Reply
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.operations import Done, ReceiveMode, ReceiverLost, Refused
from twinbus.errors import EntityAlreadyExists, EntityNotFound

QUEUE = "Fleeting"
IDLE_MS = 300_000


class Idleness(Concern):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._is_there = False
        """It was made, and nobody has seen it gone."""
        self._uses_ms = [0]
        """When it was used, as far as the question was not lost."""
        self._due_at_ms = 0
        """When the last scheduled message wakes at the latest: until then it may be in use."""
        self._surely_due_at_ms = 0
        """The same of those whose senders were answered: until then it is in use."""
        self._was_lost = False
        """The last question was, at once."""
        self._receivers: set[int] = set()
        self._was_busy = True
        """At the last look or since: then its own looks at itself decide from when on it counts."""
        self._counted_from_ms = 0
        """From when on its idleness counts at the latest: a start forgets what was before."""

    @property
    def _used_at_ms(self) -> int:
        return max(self._uses_ms)

    def begin(self) -> None:
        self.make()

    def actions(self) -> dict[Callable[[], None], float]:
        return {self.send: 0.7, self.open: 0.2, self.close: 0.4, self.make: 0.5, self.wait: 1}

    def make(self) -> None:
        settings = QueueSettings(auto_delete_on_idle_ms=IDLE_MS)
        self.place.ask(self, CreateQueue(QUEUE, settings), self.place.clock())

    def wait(self) -> None:
        """As long as it takes, or nearly."""
        self.place.clock.advance_to(self._used_at_ms + IDLE_MS + self.place.random.choice((-1, 0, 1)))

    def send(self) -> None:
        due_at_ms = self.place.clock() + 400_000 if self.place.random.random() < 0.1 else None
        name = f"f{next(self.place.numbers)}."
        self._use(SendMessages(QUEUE, (arrival(name, due_at_ms=due_at_ms),)))

    def open(self) -> None:
        self._use(OpenReceiver(next(self.place.numbers), QUEUE, ReceiveMode.PEEK_LOCK))

    def _use(self, command: SendMessages | OpenReceiver) -> None:
        """Ask something of it. If it is there this is a use; if it is not, the answer says so at once."""
        now_ms = self.place.clock()
        self._was_lost = False
        self.place.ask(self, command, now_ms)
        self._was_busy = True
        if self._is_there and not self._was_lost:
            self._uses_ms.append(now_ms)

    def close(self) -> None:
        if self._receivers:
            self._counted_from_ms = self.place.clock()
            self.place.order(CloseReceiver(self._receivers.pop()))

    def leave(self) -> None:
        while self._receivers:
            self.close()

    def answered(self, command: Asking, note: int, reply: Reply) -> None:
        match command, reply:
            case CreateQueue(), Done():
                self._is_there = True
                self._uses_ms.append(note)
            case CreateQueue(), Refused(error=EntityAlreadyExists()):
                pass
            case SendMessages(arrivals=(sent,)), Done():
                self._due_at_ms = max(self._due_at_ms, sent.due_at_ms or 0)
                self._surely_due_at_ms = max(self._surely_due_at_ms, sent.due_at_ms or 0)
            case OpenReceiver(receiver=receiver), Done():
                self._receivers.add(receiver)
            case _, Refused(error=EntityNotFound()):
                self._is_gone()
            case _:
                raise Violation(f"{command!r:.200} was answered with {reply!r:.200}")

    def lost(self, command: Asking, note: int) -> None:
        self._was_lost = True
        if (
            isinstance(command, SendMessages | OpenReceiver) and note in self._uses_ms
        ):  # a store that failed took no notice
            self._uses_ms.remove(note)
        if isinstance(command, SendMessages):  # it may be there, and wait
            self._due_at_ms = max(self._due_at_ms, command.arrivals[0].due_at_ms or 0)

    def _is_gone(self) -> None:
        """It is not there any more; that is right if it was idle for long enough."""
        if not self._is_there:
            return
        self._is_there = False
        self.place.seen["removed itself"] += 1
        idle_ms = self.place.clock() - self._used_at_ms
        check(idle_ms >= IDLE_MS, f"removed {idle_ms} ms after it was used")
        check(not self._receivers, "removed while somebody was connected to it")
        check(self._surely_due_at_ms <= self.place.clock(), "removed while a message waited in it for its time")

    def dismissed(self, reply: ReceiverLost) -> None:
        check(reply.receiver not in self._receivers, "removed while somebody was connected to it")

    def life_ended(self) -> None:
        self._receivers.clear()
        self._was_busy = True

    def look(self, machine: NamespaceMachine) -> None:
        now_ms = self.place.clock()
        is_there = any(entity.path == QUEUE for entity in self.place.disk.entities().values())
        if self._is_there and not is_there:
            self._is_gone()
        self._is_there = is_there
        if not is_there:
            self._due_at_ms = self._surely_due_at_ms = 0
        is_busy = bool(self._receivers) or self._due_at_ms > now_ms
        if is_busy or self._was_busy:
            self._counted_from_ms = now_ms
        self._was_busy = is_busy
        idle_ms = now_ms - max(self._counted_from_ms, self._used_at_ms)
        check(not is_there or idle_ms <= IDLE_MS, f"still there though it was idle for {idle_ms} ms")
