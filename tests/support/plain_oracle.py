"""What a ledger says, counted in plain Python over the lines themselves: slow, and easy to believe."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SENT, DONE = ("accepted", "backlogged"), "delivered"


class Seen(NamedTuple):
    """One message of one line."""

    process: str
    place: tuple[int, int]
    at_ms: int
    kind: str
    entity: str
    message_id: str
    session: str
    in_backlog: bool


def seen_in(ledger: Path) -> Iterator[Seen]:
    for path in sorted(ledger.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            said = json.loads(line)
            for position, message_id in enumerate(said.get("message_ids", ())):
                session = said["session_ids"][position] if "session_ids" in said else ""
                place = (said["number"], position)
                who = (said["process"], place, said["at_ms"], said["kind"], said["entity"])
                yield Seen(*who, message_id, session, bool(said.get("queue")))


def late_of_each_entity(ledger: Path) -> dict[str, tuple[int, int]]:
    """How many messages of an entity were delivered, and how many of them after one that was sent later."""
    sent: dict[Any, tuple[Any, tuple[int, int]]] = {}
    done: dict[Any, tuple[int, tuple[int, int]]] = {}
    for seen in seen_in(ledger):
        name = (seen.entity, seen.message_id)
        if seen.kind in SENT:
            sent[name] = ((seen.entity, seen.session, seen.process), seen.place)
        elif seen.kind == DONE:
            done[name] = min(done.get(name, (seen.at_ms, seen.place)), (seen.at_ms, seen.place))
    lines: dict[Any, list[tuple[tuple[int, int], Any]]] = defaultdict(list)
    for name, (line, place) in sent.items():
        lines[line].append((place, done.get(name)))
    arrived, late = Counter[str](), Counter[str]()
    for (entity, *_), messages in lines.items():
        earliest: Any = None
        for _, came in sorted(messages, reverse=True):
            if came is None:
                continue
            arrived[entity] += 1
            late[entity] += earliest is not None and came > earliest
            earliest = came if earliest is None else min(earliest, came)
    return {entity: (count, late[entity]) for entity, count in arrived.items()}


def messages_of_each_kind(ledger: Path) -> Counter[tuple[str, bool]]:
    """How often each kind was recorded of a message, in the backlog and elsewhere."""
    return Counter((seen.kind, seen.in_backlog) for seen in seen_in(ledger))
