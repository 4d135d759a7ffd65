"""What must be true of the machine when nothing is under way: it counts right, holds little, and hides nothing."""

from __future__ import annotations

from sim.accounts import Accounts, Home, Question, Reader, key_of
from sim.disk import Disk
from sim.invariants import check
from twinbus.broker.core.commands import AcceptSession
from twinbus.broker.core.namespace_machine import NamespaceMachine
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.broker.entities.entity import MessagingEntity
from twinbus.broker.entities.loaded_head import WindowLimits
from twinbus.broker.entities.locks import LOCK_COST_BYTES
from twinbus.broker.entities.queue import Queue
from twinbus.broker.entities.session_queue import SessionQueue
from twinbus.broker.entities.topics.topic import AT_ONCE_MS, Topic
from twinbus.broker.store.api import MessageRow, MessageState


def check_rest(machine: NamespaceMachine, accounts: Accounts, disk: Disk, limits: WindowLimits, now_ms: int) -> None:
    open_questions = [each for each in accounts.questions.values() if not _may_wait(each, accounts)]
    check(not open_questions, f"nobody answers: {open_questions!r:.300}")
    for entity in machine.registry.all():
        rows = disk.rows_of(entity.entity_id)
        check_counts(entity, rows)
        if isinstance(entity, Queue):
            _check_bounds(entity, accounts, limits)
            _check_room(entity, accounts, limits, now_ms)
            _check_loans(entity)
            _check_swept(rows, accounts.homes[entity.row.path.removesuffix(DEAD_LETTER_SUFFIX)], accounts, now_ms)
    for reader in accounts.open_readers():
        check(not reader.is_draining, f"receiver {reader.name} waits for its drain")
        if reader.is_waiting:
            _check_worth_waiting(reader, accounts, disk, now_ms)
        elif reader.is_ready and accounts.held_bytes(reader.name, now_ms) < limits.locked_bytes_max:
            queues = [each for each in machine.registry.all() if each.row.path == reader.path]
            if all(isinstance(queue, Queue) and queue.may_deliver for queue in queues):
                _check_fed(reader, accounts, disk, now_ms)


def _may_wait(question: Question, accounts: Accounts) -> bool:
    """Whether it is a question for any session, which is answered when there is one."""
    command = question.command
    return isinstance(command, AcceptSession) and accounts.readers[command.receiver].is_waiting


def check_counts(queue: MessagingEntity, rows: tuple[MessageRow, ...]) -> None:
    """What an entity counts is what is stored."""
    for state, counted in (
        (MessageState.ACTIVE, queue.active),
        (MessageState.DEFERRED, queue.deferred),
        (MessageState.SCHEDULED, queue.scheduled),
    ):
        there = sum(row.state is state for row in rows)
        check(counted == there, f"'{queue.row.path}' counts {counted} {state.name} messages and holds {there}")
    if isinstance(queue, Topic):
        pending = [row for row in rows if row.due_at_ms == AT_ONCE_MS]
        check(queue.is_paused or not pending, f"{len(pending)} messages stay in line in '{queue.row.path}'")
        found = (len(pending), sum(len(row.payload) for row in pending))
        check((queue.pending, queue.pending_bytes) == found, f"'{queue.row.path}' counts {queue.pending} in line")
    size = sum(len(row.payload) for row in rows)
    check(queue.payload_bytes == size, f"'{queue.row.path}' counts {queue.payload_bytes} bytes and holds {size}")


def _check_bounds(queue: Queue, accounts: Accounts, limits: WindowLimits) -> None:
    path = queue.row.path
    check(len(queue.recent) == 0, f"'{path}' remembers {len(queue.recent)} changes that everybody knows")
    check(len(queue.locks) <= queue.active + queue.deferred, f"'{path}' has {len(queue.locks)} loans")
    lent_before = sum(account.delivered_in_life == accounts.life for account in accounts.by_key.values())
    sessions = len(queue.sessions) if isinstance(queue, SessionQueue) else 0
    check(
        queue.held_rows <= limits.rows_max + sessions + lent_before, f"'{path}' holds {queue.held_rows} rows in memory"
    )
    check(len(queue.receivers.all) == len(_readers_of(queue, accounts)), f"'{path}' has receivers nobody opened")


def _check_room(queue: Queue, accounts: Accounts, limits: WindowLimits, now_ms: int) -> None:
    """What a receiver may still be lent is what it does not hold."""
    for receiver in queue.receivers.all.values():
        held = limits.locked_bytes_max - receiver.room_bytes
        seen = accounts.held_bytes(receiver.name, now_ms)
        check(held == seen, f"receiver {receiver.name} holds {seen} bytes, and {held} are counted")


def _check_loans(queue: Queue) -> None:
    """What loans take is counted for as long as there are loans."""
    least = LOCK_COST_BYTES * len(queue.locks)
    counted = queue.locks.held_bytes
    check(counted >= least and (least > 0 or counted == 0), f"'{queue.row.path}' counts {counted} bytes of loans")


def _check_swept(rows: tuple[MessageRow, ...], home: Home, accounts: Accounts, now_ms: int) -> None:
    """What time has ended is gone, and what it has woken is awake."""
    for row in rows:
        is_over = row.state is MessageState.ACTIVE and row.expires_at_ms is not None and row.expires_at_ms <= now_ms
        is_locked = accounts.by_key[key_of(row.message_id, home)].is_locked(accounts.life, now_ms)
        check(is_locked or not is_over, f"message {row.message_id} has expired and stays")
        check(row.due_at_ms is None or row.due_at_ms > now_ms, f"message {row.message_id} sleeps too long")


def _readers_of(queue: Queue, accounts: Accounts) -> list[Reader]:
    readers = accounts.open_readers()
    return [reader for reader in readers if reader.path == queue.row.path and not reader.is_waiting]


def _check_worth_waiting(reader: Reader, accounts: Accounts, disk: Disk, now_ms: int) -> None:
    """Who waits for a session waits because there is none."""
    entities = (entity.entity_id for entity in disk.entities().values() if entity.path == reader.path)
    for row in disk.rows_of(next(entities)):
        is_free = accounts.holder(reader.home, row.session_id, now_ms) is None
        is_visible = row.state is MessageState.ACTIVE and (row.expires_at_ms is None or row.expires_at_ms > now_ms)
        check(not (is_free and is_visible), f"receiver {reader.name} waits though session {row.session_id} is free")


def _check_fed(reader: Reader, accounts: Accounts, disk: Disk, now_ms: int) -> None:
    """A receiver with credit has got everything that could be had."""
    entity_id = next(entity.entity_id for entity in disk.entities().values() if entity.path == reader.path)
    for row in disk.rows_of(entity_id):
        is_locked = accounts.by_key[key_of(row.message_id, reader.home)].is_locked(accounts.life, now_ms)
        if reader.home.has_sessions and not reader.is_dead and row.session_id != reader.session:
            continue
        is_visible = row.state is MessageState.ACTIVE and (row.expires_at_ms is None or row.expires_at_ms > now_ms)
        check(is_locked or not is_visible, f"receiver {reader.name} has credit and does not get {row.message_id}")
