"""`docs/conformance-clients.md`: what the official clients of four languages found, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conformance_clients.checks import CHECKS, NOT_OFFERED
from conformance_clients.programs_run import LANGUAGES
from conformance_clients.results import DIRECT, PROXIED, read_found

PAGE = Path(__file__).parents[2] / "docs" / "conformance-clients.md"
SHOWN = {"python": "Python", "javascript": "JavaScript", "java": "Java", "go": "Go"}
SDK = "azure-servicebus 7.15.0"

HEAD = """# What the official clients found

Whoever uses one of the official clients reads here what was tried with it against a namespace of twinbus, and against
[`twinbus proxy`](how-to/any-language.md) in front of a pair. `make conformance` runs everything,
`make conformance-proxy` the same through the proxy; both write this page. The clients are not changed.

* **Python**: the official SDK's own live tests, of its clients for threads and for tasks. Small stand-ins take the
  place of what would make namespaces in the cloud. [Every test with its result](sdk-suite.md).
* **JavaScript, Java, Go**: one program each, in `tests/conformance_clients/programs`, that does everything the client
  offers, and looks at what comes of it.

"""

NOTES = """
## What differs, and whose it is

* **Go**: a lost session is accepted again by the client itself, so what was not settled comes again to the same
  receiver.
* **Go**: for an entity that does not exist the error is the AMQP condition `amqp:not-found`; its `CodeNotFound` is for
  refusals of tokens. A namespace of twinbus takes the token and refuses the link, because the Python client tries
  refused tokens again for 15 s.
* **Java**: parameters of SQL rules and properties of correlation filters are sent as strings, whatever their type is;
  numbers do not fit them then. That is the client's own: it can be seen in its requests.
* **Java**: a message that is smaller than the largest size, but with which no batch can be filled (with the limit of
  256 KiB one of 254 KiB), is **never sent, and no error is raised**: no transfer leaves the client, as its own trace
  of frames shows. Keep messages below 250 KiB.
* **Java**: the administration client goes to port 443 whatever the string says. The program adds a policy that sends
  its requests to the namespace's port.
* **Java**: the receiver for threads says only that it is terminated when its link was refused; the one for streams
  says why.
* **Python**, the client for threads: its threads share a socket, and one that reads holds it for up to 0.2 s. So it is
  slow to renew many locks at the same time (`AutoLockRenewer`) as soon as answers take a little: 300 of them took 0.5
  to 2 s without a proxy, 12 to 16 s through one, and 2 s through one with `socket_timeout=0.02` for the receiver.
* **JavaScript**: [settle neighbours one after the other](how-to/other-languages.md#node).
* **Through the proxy** a full queue refuses until the failover interval is over, then sends go on; a disabled one is
  an outage too. That is what the proxy is for. Transactions go to the primary only.
"""


def write_page() -> None:
    PAGE.write_text(page(read_found()), encoding="utf-8")


def page(found: dict[str, dict[str, Any]]) -> str:
    return HEAD + _summary(found) + _python(found.get("python", {})) + _programs(found) + NOTES


def _summary(found: dict[str, dict[str, Any]]) -> str:
    lines = ["| | client | without a proxy | through the proxy |", "|---|---|---|---|"]
    for language, name in SHOWN.items():
        client = SDK if language == "python" else LANGUAGES[language].client
        cells = [_counted(language, found.get(language, {}).get(way)) for way in (DIRECT, PROXIED)]
        lines.append(f"| {name} | {client} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def _counted(language: str, rows: Any) -> str:
    if rows is None:
        return "not run"
    if language == "python":
        applicable = rows["passed"] + rows["failed"]
        return f"{rows['passed']} of {applicable} ({100 * rows['passed'] / applicable:.1f} %)"
    passed = sum(row["passed"] for row in rows.values())
    return f"{passed} of {len(rows)}"


def _python(ways: dict[str, Any]) -> str:
    lines = ["", "## Python: what did not pass at once, and why", "", "| test | | result | why |", "|---|---|---|---|"]
    seen = set()
    for way in (DIRECT, PROXIED):
        for row in ways.get(way, {}).get("others", []):
            shown = (row["file"], row["name"], row["status"], row["why"])
            if shown not in seen:
                lines.append(f"| `{row['name']}` | {row['file']}{_where(way)} | {row['status']} | {row['why']} |")
                seen.add(shown)
    return "\n".join(lines) + "\n"


def _where(way: str) -> str:
    return "" if way == DIRECT else f", {way}"


def _programs(found: dict[str, dict[str, Any]]) -> str:
    names = list(NOT_OFFERED)
    head = "| " + " | ".join(["check", "what", *[SHOWN[name] for name in names]]) + " |"
    lines = ["", "## JavaScript, Java, Go: check by check", "", "Two results: without a proxy, and through one.", ""]
    lines += [head, "|---" * (len(names) + 2) + "|"]
    for check, what in CHECKS.items():
        cells = [_cell(check, NOT_OFFERED[name], found.get(name, {})) for name in names]
        lines.append("| " + " | ".join([f"`{check}`", what, *cells]) + " |")
    lines += ["", "`-`: the client does not offer it.", ""]
    for name in names:
        reasons = ", ".join(f"`{check}` ({why})" for check, why in NOT_OFFERED[name].items())
        lines.append(f"* {SHOWN[name]}: {reasons}.")
    return "\n".join([*lines, "", *_failures(found, names)])


def _cell(check: str, not_offered: dict[str, str], ways: dict[str, Any]) -> str:
    if check in not_offered:
        return "-"
    return ", ".join(_result(ways.get(way, {}).get(check)) for way in (DIRECT, PROXIED))


def _result(row: dict[str, Any] | None) -> str:
    if row is None:
        return "not run"
    return "passed" if row["passed"] else "**failed**"


def _failures(found: dict[str, dict[str, Any]], names: list[str]) -> list[str]:
    failed = [
        f"| {SHOWN[name]} | `{check}` | {way} | {row['evidence'].replace('|', '/')} |"
        for name in names
        for way in (DIRECT, PROXIED)
        for check, row in found.get(name, {}).get(way, {}).items()
        if not row["passed"]
    ]
    return ["| | check | way | what was seen |", "|---|---|---|---|", *failed, ""] if failed else []
