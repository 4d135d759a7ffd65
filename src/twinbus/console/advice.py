"""The questions of three in the morning, answered from what is known: is anything being lost, when will it be home,
what do I do now? An answer that is not known is called that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twinbus.client.inspection.freshness import is_stale
from twinbus.plain_text import first_few
from twinbus.units import rough_duration

Facts = Mapping[str, Any]
HOURS_LOW = 2.0
"""A backlog that is full in less than this needs somebody now."""
GONE = "does not answer"
REFUSED = "refuses the key"
"""That of the console: those of applications may be fine."""


def advise(sections: Mapping[str, Facts], now: float) -> dict[str, Any]:
    """Of what was seen too long ago nothing is concluded."""
    at = sections.get("backlog", {}).get("at")
    if at is not None and is_stale(at, now):
        text = f"Both namespaces were last looked at {rough_duration(now - at)} ago."
        return {"loss": {"state": "unknown", "text": text}, "home": {"seconds": None, "text": text}, "todo": [_ASK]}
    home = _home(sections)
    machine_at = sections.get("sources", {}).get("this machine", {}).get("at")
    if home["seconds"] != 0 and is_stale(machine_at, now):
        home = {"seconds": None, "text": f"The syphons were last looked at {rough_duration(now - machine_at)} ago."}
    return {"loss": _loss(sections), "home": home, "todo": [*_todo(sections)]}


def _state(sections: Mapping[str, Facts], side: str) -> str:
    return str(sections.get("sides", {}).get(side, {}).get("state", "unknown"))


# --- is anything being lost? ---


def _loss(sections: Mapping[str, Facts]) -> dict[str, str]:
    """`state`: no (no sign of it), risk, unknown."""
    primary, secondary = _state(sections, "primary"), _state(sections, "secondary")
    backlog = sections.get("backlog", {})
    failing = [row["name"] for row in sections.get("entities", {}).values() if row["state"] == "failing"]
    if "unknown" in (primary, secondary):
        return {"state": "unknown", "text": "The first look is under way."}
    if primary == secondary == GONE:
        spooled = _spooled(sections)
        kept = f" {spooled:,} messages are safe in spools." if spooled else ""
        return {
            "state": "risk",
            "text": f"Sends fail now, unless applications have a spool: neither side answers.{kept}",
        }
    if secondary == GONE:
        return {"state": "risk", "text": "Not now. But there is no detour: if the primary fails too, sends fail."}
    refusing = [side for side, state in (("primary", primary), ("secondary", secondary)) if state == REFUSED]
    if refusing:
        text = f"The key of the console is refused by the {' and the '.join(refusing)}: nothing is known of it."
        return {"state": "unknown", "text": text}
    if _has_no_queues(sections):
        return {"state": "risk", "text": "Not now. But there are no backlog queues: if the primary fails, sends fail."}
    full_in = backlog.get("full_in")
    if full_in is not None and full_in < HOURS_LOW * 3600:
        return {"state": "risk", "text": f"Not now. The backlog is full in {rough_duration(full_in)}: then sends fail."}
    if backlog.get("waiting_at_least") is None or backlog.get("doubt"):
        return {"state": "unknown", "text": "The backlog cannot be looked into as a whole."}
    quarantined = backlog.get("quarantined")
    verb = "waits" if quarantined == 1 else "wait"
    aside = f" {quarantined:,} in quarantine {verb} for a decision." if quarantined else ""
    if failing:
        some = first_few(failing, 3)
        text = f"Sends to {some} may fail until clients fail over. What was accepted stays where it was stored."
        return {"state": "risk", "text": text + aside}
    return {"state": "no", "text": f"The backlog has room. Only a report proves that nothing is lost.{aside}"}


def _has_no_queues(sections: Mapping[str, Facts]) -> bool:
    queues = sections.get("queues", {}).values()
    return bool(queues) and all(row["reason"].startswith("not found") for row in queues)


# --- when will it be home? ---


def _home(sections: Mapping[str, Facts]) -> dict[str, Any]:
    """`seconds`: until the backlog is home; None: not known, and `text` says why. `word`: that in short."""
    backlog = sections.get("backlog", {})
    waiting, at_least = backlog.get("waiting"), backlog.get("waiting_at_least")
    if waiting == 0:
        return _home_but(_spooled(sections), backlog.get("quarantined"))
    if not at_least and waiting is None:
        return {"seconds": None, "text": "The backlog cannot be counted."}
    syphons = [*sections.get("syphons", {}).values()]
    running = [row for row in syphons if row["state"] == "running"]
    rate = sum(row.get("rate") or 0.0 for row in running)
    remote = [row for row in sections.get("processes", {}).values() if row["syphon"] and row["state"] == "reporting"]
    rate = rate or sum(row["syphon"]["rate"] for row in remote)
    if rate > 0:
        seconds = float(waiting or at_least or 0) / rate
        more = "" if waiting is not None else "at least "
        return {"seconds": seconds, "text": f"In {more}{rough_duration(seconds)} at {rate:,.0f} messages a second."}
    if any("paused" in row["state"] for row in syphons):
        return {"seconds": None, "word": "Paused", "text": "Not before somebody resumes the syphon."}
    if running or remote:
        return {
            "seconds": None,
            "word": "Stuck",
            "text": "A syphon runs, and nothing moves: its entities are down, or it waits.",
        }
    if backlog.get("syphon_seen"):
        return {"seconds": None, "text": "A syphon elsewhere is at work; how fast is not known."}
    return {"seconds": None, "word": "Not by itself", "text": "No syphon is running, as far as can be seen."}


def _home_but(spooled: int, quarantined: int | None) -> dict[str, Any]:
    """The backlog is empty. What waits elsewhere is not home."""
    rest = [f"{spooled:,} in spools"] if spooled else []
    rest += [f"{quarantined:,} in quarantine"] if quarantined else []
    if rest:
        return {"seconds": None, "word": "Not all", "text": f"The backlog is empty; not home: {' and '.join(rest)}."}
    if quarantined is None:
        return {"seconds": 0.0, "text": "The backlog is empty. What is in quarantine is not known."}
    return {"seconds": 0.0, "text": "Everything is home."}


def _spooled(sections: Mapping[str, Facts]) -> int:
    """Messages in spools, at least: those of this machine may report on the board, too."""
    here: int = sum(row["messages"] for row in sections.get("spools", {}).values())
    reporting = [row for row in sections.get("processes", {}).values() if row["state"] == "reporting"]
    return max(here, sum(row.get("spooled") or 0 for row in reporting))


# --- what do I do now? ---


def _todo(sections: Mapping[str, Facts]) -> Iterator[dict[str, Any]]:
    """In the order of urgency; with an action where there is a button for it, else with a command to type."""
    primary, secondary = _state(sections, "primary"), _state(sections, "secondary")
    backlog, faults = sections.get("backlog", {}), sections.get("faults", {})
    for key, row in faults.items():
        yield _step(f"{row['text']}: a fault that somebody has ordered.", action="fault.clear", key=key)
    for side in [side for side, state in (("primary", primary), ("secondary", secondary)) if state == REFUSED]:
        yield _step(f"Give the console a key that the {side} accepts.")
    if secondary == GONE:
        yield _step("Bring the secondary back: without it there is no detour.")
    if secondary == "answers" and _has_no_queues(sections):
        yield _step("Make the backlog queues.", "twinbus pair")
    if primary == GONE:
        yield _step("Look at the primary. Sends go to the backlog meanwhile: do not restart senders.")
        yield _step("Tell the owners of consumers: they read the primary only, and wait.")
    full_in = backlog.get("full_in")
    if full_in is not None and full_in < HOURS_LOW * 3600:
        yield _step(f"The backlog is full in {rough_duration(full_in)}: add queues.", "twinbus pair --queues 20")
    down = [row["name"] for row in sections.get("entities", {}).values() if row["state"] == "failed over"]
    if down and primary == "answers" and not faults:
        some = first_few(down, 3)
        yield _step(f"Look at {some} on the primary. Sends go to the backlog meanwhile: do not restart senders.")
    waiting = backlog.get("waiting") or backlog.get("waiting_at_least") or 0
    syphons = sections.get("syphons", {})
    paused = [(key, row) for key, row in syphons.items() if "paused" in row["state"]]
    for key, row in paused if waiting else ():
        yield _step(f"{row['name']} is paused.", f"twinbus syphon resume {key}", action="syphon.resume", key=key)
    has_syphon = bool(syphons) or any(row["syphon"] for row in sections.get("processes", {}).values())
    states = {row["state"] for row in sections.get("entities", {}).values() if row["waiting_at_least"]}
    is_open = primary == "answers" and not states <= {"failed over", "failing"}
    if waiting and is_open and not has_syphon and not backlog.get("syphon_seen"):
        yield _step("Bring the backlog home: one message first, then all.", "twinbus syphon --first 1 --until-empty")
    for row in [row for row in sections.get("queues", {}).values() if row["state"] == "not emptied"][:3]:
        yield _step(f"{row['name']} cannot be emptied: {row['reason']}")
    if backlog.get("quarantined"):
        yield _step("Look into the quarantine.", "twinbus syphon quarantine list", link="#quarantine")
    if sections.get("fleet", {}).get("silent"):
        yield _step(f"{sections['fleet']['silent']:,} processes have gone silent.", link="#processes")


def _step(text: str, command: str = "", *, action: str = "", key: str = "", link: str = "") -> dict[str, str]:
    return {"text": text, "command": command, "action": action, "key": key, "link": link}


_ASK = _step("The console gets no answer. Ask from another terminal or machine.", "twinbus status")
