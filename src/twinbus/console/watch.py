"""Asks the sources again and again, and puts what they say into the state.

Each source has a task of its own, so that a silent one delays no other. What blocks runs on a thread and is bounded in
time. Nothing here raises: what cannot be asked is shown as such.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import Any

from twinbus.board.fleet import Fleet
from twinbus.board.reader import BoardReader
from twinbus.cli.status.proxy_view import ProxyReport, look_at_proxies
from twinbus.cli.status.spool_view import SpoolView
from twinbus.client.inspection.fleet_health import with_fleet
from twinbus.client.inspection.freshness import is_stale, pause_s
from twinbus.client.inspection.health import EVERYTHING, Judgement, judge
from twinbus.client.inspection.inspect_pair import inspect
from twinbus.client.inspection.reports import Inspection
from twinbus.console import sections
from twinbus.console.actions import SIDES, ConsolePair
from twinbus.console.advice import advise
from twinbus.console.meter_reading import read_meter
from twinbus.console.state import ConsoleState
from twinbus.control import control_client
from twinbus.cost.prices import Prices
from twinbus.drill.injection import control_of
from twinbus.errors import TwinbusError
from twinbus.ledger.kinds import Kind
from twinbus.ledger.reading.tail import LedgerTail
from twinbus.ledger.schema import Record
from twinbus.pairing.backlog.backlog_queues import index_of
from twinbus.plain_text import on_one_line, without_keys
from twinbus.syphon.control import RunningSyphon, running_syphons
from twinbus.syphon.quarantine import Quarantine
from twinbus.transport.failures import ConnectionFailed
from twinbus.units import parse_time, rough_duration

logger = logging.getLogger("twinbus.console")

THE_PAIR = "the pair"
BUSY_SHARE = 4.0
"""A look takes part of a processor: the next one begins only after four times its length, if that is soon enough."""
BOARD_S, LOCAL_S, METER_S, SAMPLE_S, QUARANTINE_S = 5.0, 1.0, 5.0, 5.0, 15.0
QUARANTINED_MAX = 200
RECORDS_AT_ONCE = 500
STATE_KINDS = frozenset(
    (
        *(Kind.SUSPECTED, Kind.FAILED_OVER, Kind.RECOVERED, Kind.QUEUE_LEFT_OUT, Kind.QUEUE_BACK, Kind.FAULTED),
        *(Kind.SECONDARY_UNREACHABLE, Kind.SECONDARY_BACK, Kind.PAIRED, Kind.DESTINATION_SKIPPED),
        *(Kind.DESTINATION_BACK, Kind.PAUSED, Kind.RESUMED),
    )
)
"""Records that the page shows as events; those of single messages are too many."""
BAD_KINDS = frozenset((Kind.SUSPECTED, Kind.FAILED_OVER, Kind.FAULTED, Kind.SECONDARY_UNREACHABLE))
GOOD_KINDS = frozenset((Kind.RECOVERED, Kind.QUEUE_BACK, Kind.SECONDARY_BACK, Kind.DESTINATION_BACK))


class ConsoleWatch:
    """`start` it in an event loop, and `stop` it before that ends."""

    def __init__(
        self,
        pair: ConsolePair,
        state: ConsoleState,
        *,
        every_s: float = 5.0,
        entities: Collection[str] = (),
        ledger: Path | None = None,
        spool: Path | None = None,
    ) -> None:
        """`entities`: names of entities to ask about; none: all. `ledger`: where events come from, too."""
        self._pair, self._state, self._every_s, self._entities = pair, state, every_s, entities
        self._spools = SpoolView(spool, pair.primary_name)
        self._tail = None if ledger is None else LedgerTail(ledger, lambda record: record.kind in STATE_KINDS)
        self._board = BoardReader(pair.secondary.dial(pair.attempt_s), pair.primary_name, attempt_s=pair.attempt_s)
        self._seen: Inspection | None = None
        self._fleet: Fleet | None = None
        self._fleet_at = 0.0
        self._proxies: list[ProxyReport] = []
        self._rates: dict[str, tuple[float, int]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        sources: list[tuple[str, Callable[[], Awaitable[bool]], float]] = [
            (THE_PAIR, self._look, self._every_s),
            ("the board", self._look_at_board, BOARD_S),
            ("this machine", self._look_around, LOCAL_S),
            ("the meters", self._read_meters, METER_S),
            ("the answers", self._advise, LOCAL_S),
            ("the quarantine", self._look_into_quarantine, QUARANTINE_S),
            ("the plots", self._sample, SAMPLE_S),
            *([] if self._tail is None else [("the ledger", self._read_ledger, LOCAL_S)]),
        ]
        self._tasks = [asyncio.create_task(self._again(name, act, every)) for name, act, every in sources]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._board.close()

    def queues(self) -> list[int]:
        """The indexes of the backlog queues that are there, as far as is known."""
        names = [each.path for each in (() if self._seen is None else self._seen.queues_there)]
        found = {index_of(name, self._pair.primary_name) for name in names}
        return sorted(index for index in found if index is not None) or [*range(self._pair.queue_count)]

    # --- asking again and again ---

    async def _again(self, name: str, act: Callable[[], Awaitable[bool]], every_s: float) -> None:
        while True:
            began = monotonic()
            await self._ask(name, act)
            await asyncio.sleep(pause_s(every_s, monotonic() - began, BUSY_SHARE))

    async def _ask(self, name: str, act: Callable[[], Awaitable[bool]]) -> None:
        """`act` says whether it has seen anything: if not, or if it fails, what was seen before gets older."""
        before = self._state.section("sources").get(name, {})
        at, seen_at, problem = time(), before.get("at"), ""
        try:
            seen_at = at if await act() else seen_at
        except (TwinbusError, ConnectionFailed, OSError) as error:
            problem = on_one_line(without_keys(str(error)))
        except Exception as error:  # a mistake of ours must not end the watch
            logger.exception("the console could not look at %s", name)
            problem = f"unexpected {type(error).__name__}"
        if problem and problem != before.get("problem"):
            self._state.add_event("note", f"{name} cannot be read: {problem}")
        self._state.put("sources", {**self._state.section("sources"), name: sections.source_row(seen_at, problem)})

    # --- the pair ---

    async def _look(self) -> bool:
        pair = self._pair
        ask = partial(
            inspect,
            pair.primary,
            pair.secondary,
            pair.queue_count,
            primary_name=pair.primary_name,
            attempt_s=pair.attempt_s,
            earlier=self._seen,
            entities=tuple(self._entities),
        )
        seen = await asyncio.to_thread(ask)
        self._seen = seen
        state = self._state
        state.put("sides", sections.side_rows(seen))
        state.put("backlog", sections.backlog_facts(seen))
        state.put("queues", sections.queue_rows(seen))
        state.put("unlisted", {"why": seen.entities_unlisted})
        self._put_judged()
        return True

    def _judge(self, seen: Inspection) -> Judgement:
        """As `twinbus status` does."""
        judgement, fleet = self._spools.judge(judge(seen, EVERYTHING), EVERYTHING), self._fleet
        if fleet is not None and is_stale(self._fleet_at, time()):
            fleet = Fleet(has_board=None, problem=f"the board was read {rough_duration(time() - self._fleet_at)} ago")
        return judgement if fleet is None else with_fleet(judgement, fleet, EVERYTHING)

    def _put_judged(self) -> None:
        """What follows from both namespaces and the board, whichever was looked at."""
        if self._seen is not None:
            self._state.put("verdict", sections.verdict_rows(self._judge(self._seen), self._seen))
            statuses = [each.facts for each in self._proxies if each.facts is not None]
            pings = sections.next_pings(statuses, parse_time)
            self._state.put("entities", sections.entity_rows(self._seen, self._fleet, pings, self._fleet_at))

    async def _look_at_board(self) -> bool:
        self._fleet, self._fleet_at = await self._board.look(), time()
        self._state.put("fleet", sections.fleet_facts(self._fleet))
        self._state.put("processes", sections.process_rows(self._fleet))
        self._put_judged()
        return self._fleet.has_board is not None

    async def _look_into_quarantine(self) -> bool:
        seen, pair = self._seen, self._pair
        if seen is None or not seen.secondary.is_reachable:
            return False
        rows: dict[str, dict[str, Any]] = {}
        if seen.dead_letters != 0:
            dial = await asyncio.to_thread(pair.secondary.dial, pair.attempt_s)
            quarantine = Quarantine(
                dial, pair.primary_name, pair.queue_count, queues=self.queues(), attempt_s=pair.attempt_s
            )
            async with quarantine:
                async for each in quarantine.list():
                    rows[f"{each.queue}/{each.sequence}"] = {
                        "number": [each.queue, each.sequence],
                        "message_id": each.message_id,
                        "entity": each.path,
                        "reason": each.reason,
                        "description": each.description,
                        "size": each.size,
                        "since": None if each.enqueued_ms is None else each.enqueued_ms / 1000,
                    }
                    if len(rows) == QUARANTINED_MAX:
                        break
        self._state.put("quarantine", rows)
        return True

    # --- this machine ---

    async def _look_around(self) -> bool:
        pair = self._pair
        syphons = await asyncio.to_thread(running_syphons, pair.primary_name)
        self._state.put("syphons", {each.id: _syphon_row(each) for each in syphons})
        self._proxies = await asyncio.to_thread(look_at_proxies)
        self._state.put("proxies", {f"{each.name}-{each.pid}": _proxy_row(each) for each in self._proxies})
        await asyncio.to_thread(self._spools.look)
        self._state.put(
            "spools", {each.folder: {"name": each.folder, **each.as_dict()} for each in self._spools.folders}
        )
        self._state.put("faults", await asyncio.to_thread(self._faults))
        return True

    async def _advise(self) -> bool:
        """On its own, so that nothing that hangs keeps an old answer."""
        self._state.put("advice", advise(self._state.sections, time()))
        return True

    def _faults(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for side, control in self._pair.controls.items():
            try:
                in_force = control_client.ask(control, "fault.list", wait_s=2.0)
            except TwinbusError:  # its namespace is down: shown elsewhere
                continue
            now = time()
            for each in in_force:
                left_ms = each.get("left_ms")
                ends = None if left_ms is None else round(now + left_ms / 1000)
                text = str(each.get("text", each["id"])).rpartition(", ")[
                    0
                ]  # without what is left: that is counted here
                found[f"{side}/{each['id']}"] = {"side": side, "id": each["id"], "text": text, "ends": ends}
        return found

    async def _read_meters(self) -> bool:
        for side in SIDES:
            if side not in self._pair.controls and (found := await control_of(self._pair.side(side))) is not None:
                self._pair.controls[side] = found
        self._state.put("controls", {"sides": sorted(self._pair.controls)})
        sides = [side for side in SIDES if side in self._pair.controls]  # nobody else is shown a key
        readings = await asyncio.gather(*[read_meter(self._pair.side(side)) for side in sides])
        by_side = dict(zip(sides, readings, strict=True))
        self._state.put("meter", sections.meter_facts(by_side, Prices()))
        return True

    # --- events and plots ---

    async def _read_ledger(self) -> bool:
        assert self._tail is not None
        if "ledger" not in self._rates:
            self._rates["ledger"] = (0.0, 0)
            found = await asyncio.to_thread(self._tail.last, 50)
        else:
            found = await asyncio.to_thread(self._tail.added)
        for record in found[-RECORDS_AT_ONCE:]:
            self._tell_record(record)
        return True

    def _tell_record(self, record: Record) -> None:
        kind = "bad" if record.kind in BAD_KINDS else "good" if record.kind in GOOD_KINDS else "note"
        what = " ".join(
            filter(None, [record.entity or record.queue or record.namespace, record.kind.replace("_", " ")])
        )
        where = f" (process {record.pid} on {record.host})"
        why = f": {record.reason}" if record.reason else ""
        self._state.add_event(kind, what + why + where, record.entity, record.at_ms / 1000)

    async def _sample(self) -> bool:
        """What was seen too long ago is no sample of now."""
        if self._seen is None or is_stale(self._seen.at, time()):
            return False
        backlog = self._state.section("backlog")
        waiting = backlog.get("waiting")
        syphons = [each["rate"] or 0.0 for each in self._state.section("syphons").values() if each["rate"] is not None]
        self._state.sample(
            {
                "waiting": backlog.get("waiting_at_least") if waiting is None else waiting,
                "bytes": backlog.get("size"),
                "home": sum(syphons),
                "primary": self._rate("primary", "send"),
                "backlog": self._rate("secondary", "send"),
                "state": self._state.section("verdict").get("pair", {}).get("state", "unknown"),
            }
        )
        return True

    def _rate(self, side: str, kind: str) -> float | None:
        """Operations of a kind a second since the last sample; None: unknown, e.g. without a meter."""
        metered = self._state.section("meter").get("sides", {}).get(side)
        if metered is None:
            self._rates.pop(side, None)
            return None
        now, count = monotonic(), metered["by_kind"].get(kind, 0)
        before, self._rates[side] = self._rates.get(side), (now, count)
        if before is None or count < before[1]:
            return None
        return float(count - before[1]) / max(0.001, now - before[0])


def _syphon_row(syphon: RunningSyphon) -> dict[str, Any]:
    facts = {} if syphon.facts is None else syphon.facts.as_dict()
    state = "does not answer" if syphon.facts is None else syphon.facts.state
    return {
        "name": f"syphon {syphon.id}",
        "id": syphon.id,
        "pid": syphon.pid,
        "rate": None,
        **facts,
        "state": state,
        "reason": syphon.problem,
    }


def _proxy_row(proxy: ProxyReport) -> dict[str, Any]:
    facts = proxy.facts or {}
    state = {True: "ready", False: "not ready", None: "does not answer"}[proxy.is_ready]
    address = f"{facts['host']}:{facts['port']}" if "port" in facts else None
    return {
        "name": f"proxy {proxy.name}",
        "pid": proxy.pid,
        "state": state,
        "reason": proxy.problem,
        "address": address,
        "connections": facts.get("connections"),
    }
