"""Ledgers in which anything happens: nothing that a sane system would do."""

from __future__ import annotations

import random

from scripted_ledger import BASE_MS, MINUTE, Script

from twinbus.ledger import Event, Kind
from twinbus.ledger.kinds import FACTS

TOLD_BY_NAMESPACES = [kind for kind, facts in FACTS.items() if facts.by == ("namespace",)]
KINDS = [str(kind) for kind in Kind if kind not in (Kind.OPENED, Kind.CLOSED, Kind.GAP, Kind.REJECTED)]


def random_ledger(seed: int, messages: int, *, spread: int | None = None) -> list[Script]:
    """Anything may happen to any message at any time, in batches: nothing that a sane system would do. Some of it, in
    the words of namespaces, happens in another one than the primary.

    With a `spread`, what happens at a time happens to one of so many messages of that time.
    """
    chance = random.Random(seed)
    scripts = [Script(f"{number:016x}", "any") for number in range(3)]
    for _ in range(messages * 3):
        at = chance.randrange(120 * MINUTE)
        first = at * (messages - (spread or messages)) // (120 * MINUTE)
        ids = tuple(f"m{first + chance.randrange(spread or messages)}" for _ in range(chance.choice((1, 1, 2, 5))))
        entity = chance.choice(
            ("orders", "Orders", "news/Subscriptions/a", "news/subscriptions/b", "news", "bills", "")
        )
        sessions = tuple(chance.choice(("", "", "s1")) for _ in ids) if chance.random() < 0.3 else ()
        kind = chance.choice(KINDS)
        event = Event(
            kind,
            entity,
            "Backup" if kind in TOLD_BY_NAMESPACES and chance.random() < 0.3 else chance.choice(("contoso", "Contoso")),
            queue=chance.choice(("", "", "q/0", "q/1")),
            message_ids=ids,
            session_ids=sessions,
            sizes=tuple(chance.randrange(200_000) for _ in ids),
            until_ms=chance.choice((0, 0, 0, BASE_MS + 100 * MINUTE)),
        )
        chance.choice(scripts).note(BASE_MS + at, event)
    return scripts
