"""The proxies of this machine, as `twinbus status` shows them: each is asked over its control socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from twinbus.cli.exit_codes import ExitCode
from twinbus.cli.output import table
from twinbus.errors import TwinbusError
from twinbus.plain_text import harmless, on_one_line
from twinbus.units import size_text

ANSWER_S = 2.0
PROXY = "proxy"


@dataclass(frozen=True, slots=True)
class ProxyReport:
    """One proxy, as it described itself."""

    name: str
    pid: int
    facts: dict[str, Any] | None
    """None: it did not answer."""
    problem: str = ""
    """Why not; or what it says is wrong."""

    @property
    def is_ready(self) -> bool | None:
        return None if self.facts is None else self.facts.get("is_ready") is True

    def as_dict(self) -> dict[str, Any]:
        known = self.facts or {"proxy": self.name, "is_ready": None, "reason": self.problem}
        return {**known, "pid": self.pid}


def look_at_proxies() -> list[ProxyReport]:
    """The running ones of this user, by name."""
    from twinbus.control.control_client import ask
    from twinbus.control.local_register import registered

    reports = []
    for found in registered(PROXY):
        try:
            facts = ask(found.path, "status", wait_s=ANSWER_S)
        except TwinbusError as error:
            reports.append(ProxyReport(found.name, found.pid, None, str(error)))
        else:
            known = facts if isinstance(facts, dict) else None
            reports.append(ProxyReport(found.name, found.pid, known, str((known or {}).get("reason", ""))))
    return reports


def proxies_table(reports: Sequence[ProxyReport]) -> str:
    """A row for each, then what is wrong with them."""
    rows = [_row(report) for report in reports]
    heads = ("proxy", "pid", "listens on", "state", "primary", "secondary", "connections", "in spool")
    lines = [f"{on_one_line(report.name)}: {on_one_line(report.problem)}" for report in reports if report.problem]
    return harmless("\n".join([table([heads, *rows]), *lines]), "\n")


def _row(report: ProxyReport) -> tuple[object, ...]:
    state = {True: "ready", False: "not ready", None: "does not answer"}[report.is_ready]
    facts = report.facts or {}
    pair = facts.get("pair") or {}
    address = f"{facts['host']}:{facts['port']}" if "port" in facts else "?"
    known = (pair.get("primary", "?"), pair.get("secondary", "?"), facts.get("connections", "?"))
    return (on_one_line(report.name), str(report.pid), address, state, *known, _spool(pair.get("spool")))


def _spool(spool: Any) -> str:
    if not isinstance(spool, dict):
        return "-"
    return f"{spool.get('messages', 0):,} messages, {size_text(spool.get('size_bytes'))}"


def exit_code(reports: Sequence[ProxyReport]) -> ExitCode:
    """For a look at proxies alone."""
    if any(report.is_ready is False for report in reports):
        return ExitCode.FAILING
    return ExitCode.NOT_ALL if any(report.is_ready is None for report in reports) else ExitCode.DONE
