"""The results of the SDK's tests as a page: every test, whether it passed, and why not."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from sdk_suite.known_outcomes import FAILS, NOT_APPLICABLE

PASSED, FAILED, SKIPPED = "passed", "failed", "not applicable"
REASON_CHARS = 160

HEAD = """# The official SDK's own tests

`make conformance` downloads the source of `{release}`, whose tests ship inside, and runs its live tests
of the sync clients against our server. Their files are not changed: small stand-ins (`tests/sdk_suite/stand_ins.py`)
take the place of what would make namespaces and queues in the cloud, and every test gets a namespace of its own. This
page is written by that command.

{summary}

* **passed**: as it is, against our server.
* **failed**: and why.
* **not applicable**: the SDK skips it or expects it to fail, or it is about something that is not the server; and why.

"""


@dataclass(frozen=True)
class Result:
    file: str
    name: str
    outcome: str
    shown: str
    """What pytest said, in a line."""

    @property
    def status(self) -> str:
        return SKIPPED if self.outcome == FAILED and self.name in NOT_APPLICABLE else self.outcome

    @property
    def why(self) -> str:
        if self.outcome == PASSED:
            return ""
        return NOT_APPLICABLE.get(self.name) or FAILS.get(self.name) or self.shown

    @property
    def is_strange(self) -> bool:
        """Whether it failed, and nobody has said why."""
        return self.outcome == FAILED and self.name not in NOT_APPLICABLE and self.name not in FAILS


def read_results(file: Path) -> list[Result]:
    """What pytest wrote about each test, by file and name."""
    cases = ElementTree.parse(file).getroot().iter("testcase")  # our own pytest has written it
    return sorted([_result(case) for case in cases], key=lambda result: (result.file, result.name))


def _result(case: ElementTree.Element) -> Result:
    file = next(part for part in case.attrib["classname"].split(".") if part.startswith("test_"))
    name = case.attrib["name"].replace("[pyamqp]", "")
    for tag, outcome in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
        found = case.find(tag)
        if found is not None:
            return Result(file, name, outcome, _said(found))
    return Result(file, name, PASSED, "")


def _said(found: ElementTree.Element) -> str:
    if found.tag == "skipped":
        return "the SDK expects it to fail" if found.attrib.get("type") == "pytest.xfail" else "the SDK skips it itself"
    return " ".join(found.attrib.get("message", "").split())[:REASON_CHARS].replace("|", "/")


def written_page(release: str, results: list[Result]) -> str:
    return HEAD.format(release=release, summary=_summary(results)) + "\n".join(
        _table(file, [result for result in results if result.file == file])
        for file in dict.fromkeys(result.file for result in results)
    )


def _summary(results: list[Result]) -> str:
    counts = Counter(result.status for result in results)
    return f"Of {len(results)} tests " + ", ".join(f"{counts[each]} {each}" for each in (PASSED, FAILED, SKIPPED)) + "."


def _table(file: str, results: list[Result]) -> str:
    rows = [f"| `{result.name}` | {result.status} | {result.why} |" for result in results]
    return "\n".join([f"## {file}", "", "| test | result | why |", "|---|---|---|", *rows, ""])
