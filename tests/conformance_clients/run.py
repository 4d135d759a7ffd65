"""`make conformance`, second half: the programs in JavaScript, Java and Go; writes `docs/conformance-clients.md`.

With `--through-proxy` a proxy is in front of a pair. Names of languages, or of checks, restrict it: with checks the
page stays as it is.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from conformance_clients.checks import CHECKS, NOT_OFFERED
from conformance_clients.clients_page import write_page
from conformance_clients.programs_run import LANGUAGES, Finding, run_program, running_bus, say
from conformance_clients.results import DIRECT, PROXIED, keep_found
from languages.clients import NotReady, prepare

THROUGH_PROXY = "--through-proxy"


def main() -> None:
    wishes = set(sys.argv[1:])
    is_proxied = THROUGH_PROXY in wishes
    languages = [name for name in LANGUAGES if name in wishes] or list(LANGUAGES)
    only = [name for name in CHECKS if name in wishes]
    failed = [f"{name}: {each}" for name in languages for each in _failed(name, is_proxied, only)]
    if not only:
        write_page()
    for each in failed:
        say(f"conformance: failed: {each}")
    sys.exit(1 if failed else 0)


def _failed(name: str, is_proxied: bool, only: list[str]) -> list[str]:
    """The checks that a program did not pass, or did not make."""
    try:
        command = prepare(LANGUAGES[name])
    except NotReady as error:
        say(f"conformance: {error}")
        return [f"not run: {error}"]
    expected = [each for each in only or CHECKS if each not in NOT_OFFERED[name]]
    found: dict[str, Finding] = {}
    with tempfile.TemporaryDirectory() as folder, running_bus(Path(folder), is_proxied) as bus:
        for finding in run_program(LANGUAGES[name], command, bus, Path(folder) / "log", only):
            found[finding.check] = finding
            say(f"{'passed' if finding.passed else 'FAILED'} {name} {finding.check}: {finding.evidence}")
    if not only:
        rows = {each.check: {"passed": each.passed, "evidence": each.evidence} for each in found.values()}
        rows |= {each: {"passed": False, "evidence": "no result"} for each in expected if each not in found}
        keep_found(name, PROXIED if is_proxied else DIRECT, rows)
    unknown = [f"{each}: not a check" for each in found if each not in CHECKS or each in NOT_OFFERED[name]]
    return [each for each in expected if each not in found or not found[each].passed] + unknown


if __name__ == "__main__":
    main()
