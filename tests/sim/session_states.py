"""The state of a session: what was set last is what is found, through crashes, and only for who has the session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sim.concern import Asking, Concern, Place
from sim.invariants import Violation, check
from twinbus.broker.core.commands import AcceptSession, CloseReceiver, CreateQueue, GetSessionState, SetSessionState
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.replies import Reply, SessionStateFound
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.settings import QueueSettings
from twinbus.broker.operations import Done, ReceiveMode, ReceiverLost, Refused, SessionAccepted
from twinbus.broker.store.api import SessionStateOf, StateRead
from twinbus.errors import SessionCannotBeLocked, SessionLockLost

QUEUE = "Talks"
NAMES = ("a", "b")
LOCK_MS = 60_000

State = bytes | None


@dataclass(slots=True, eq=False)
class Getting:
    """A question for a state that is under way, with every state that the session has had since it was asked."""

    name: str
    since: set[State]


class SessionStates(Concern):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._possible: dict[str, set[State]] = {name: {None} for name in NAMES}
        """By session: what its state may be, of all that was answered or is lost without an answer."""
        self._setting: dict[str, list[State]] = {name: [] for name in NAMES}
        """States that are being set, in order."""
        self._getting: list[Getting] = []
        self._held: dict[str, tuple[int, int]] = {}
        """By session: who has it, and until when."""

    def begin(self) -> None:
        settings = QueueSettings(requires_session=True, lock_ms=LOCK_MS)
        self.place.ask(self, CreateQueue(QUEUE, settings), None)

    def actions(self) -> dict[Callable[[], None], float]:
        return {self.accept: 6, self.close: 1, self.set: 12, self.get: 12}

    def accept(self) -> None:
        name = self.place.random.choice(NAMES)
        receiver = next(self.place.numbers)
        self.place.ask(self, AcceptSession(receiver, QUEUE, ReceiveMode.PEEK_LOCK, name), None)

    def close(self) -> None:
        if self._held:
            name = self.place.random.choice(list(self._held))
            self.place.order(CloseReceiver(self._held.pop(name)[0]))

    def set(self) -> None:
        name = self.place.random.choice(NAMES)
        state = self.place.random.choice((None, f"s{next(self.place.numbers)}".encode()))
        is_paused = self._is_locked(name)
        if is_paused:
            self._setting[name].append(state)
        self.place.ask(self, SetSessionState(QUEUE, name, state), is_paused)

    def get(self) -> None:
        name = self.place.random.choice(NAMES)
        getting = Getting(name, set(self._possible[name]))
        self._getting.append(getting)
        self.place.ask(self, GetSessionState(QUEUE, name), getting)

    def _is_locked(self, name: str) -> bool:
        return name in self._held and self._held[name][1] > self.place.clock()

    def answered(self, command: Asking, note: Any, reply: Reply) -> None:
        match command, reply:
            case SetSessionState(session_id=name, state=state), Done():
                self._was_set(name, state)
            case SetSessionState(session_id=name), Refused(error=SessionLockLost()):
                check(not self._is_locked(name), f"the state of session {name} was not set though it is held")
            case GetSessionState(), SessionStateFound(state=state):
                self._was_found(note, state)
            case GetSessionState(session_id=name), Refused(error=SessionLockLost()):
                self._getting.remove(note)
                check(not self._is_locked(name), f"the state of session {name} was not told though it is held")
            case AcceptSession(receiver=receiver, session_id=str(name)), SessionAccepted(locked_until_ms=until_ms):
                check(not self._is_locked(name), f"session {name} was given to two")
                self._held[name] = (receiver, until_ms)
            case AcceptSession(session_id=str(name)), Refused(error=SessionCannotBeLocked()):
                check(self._is_locked(name), f"session {name} is free and was refused")
            case CreateQueue(), Done():
                pass
            case _:
                raise Violation(f"{command!r:.200} was answered with {reply!r:.200}")

    def _was_set(self, name: str, state: State) -> None:
        self.place.seen["states set"] += 1
        check(
            self._setting[name][:1] == [state],
            f"the state of session {name} was set out of order, or by another",
        )
        self._setting[name].pop(0)
        self._possible[name] = {state}
        for getting in self._getting:
            if getting.name == name:
                getting.since.add(state)

    def _was_found(self, getting: Getting, state: State) -> None:
        """What is answered is durable: what is still being set is nobody's business."""
        self.place.seen["states found"] += 1
        self._getting.remove(getting)
        check(state in getting.since, f"session {getting.name} has {state!r}, and may have had {getting.since}")

    def lost(self, command: Asking, note: Any) -> None:
        if isinstance(command, SetSessionState) and note:
            self._setting[command.session_id].remove(command.state)
            self._possible[command.session_id].add(command.state)
        elif isinstance(command, GetSessionState):
            self._getting.remove(note)

    def dismissed(self, reply: ReceiverLost) -> None:
        for name, (receiver, until_ms) in list(self._held.items()):
            if receiver == reply.receiver:
                check(until_ms <= self.place.clock(), f"session {name} was taken away before its time")
                del self._held[name]

    def life_ended(self) -> None:
        self._held.clear()

    def look(self, machine: NamespaceMachine) -> None:
        """What is stored is what was set; whatever was in doubt is decided."""
        queue = machine.registry.find_queue(QUEUE)
        entity_id = queue.entity_id
        assert isinstance(queue, SessionQueue)
        stored = self.place.disk.stored().summaries[entity_id]
        counted = (queue.states.count, queue.states.size_bytes)
        there = (stored.states, stored.state_bytes)
        check(counted == there, f"states are counted as {counted}, and {there} are stored (how many, bytes)")
        for name in NAMES:
            read = self.place.disk.answer(SessionStateOf(entity_id, name))
            assert isinstance(read, StateRead)
            check(read.state in self._possible[name], f"session {name} has {read.state!r}, not {self._possible[name]}")
            self._possible[name] = {read.state}
