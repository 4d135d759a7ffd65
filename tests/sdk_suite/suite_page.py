"""The results of the SDK's tests as a page: every test, whether it passed, and why not."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from sdk_suite.known_outcomes import FAILS, FAILS_THROUGH_PROXY, NOT_APPLICABLE

PASSED, FAILED, SKIPPED, NOT_OURS = "passed", "failed", "skipped", "not applicable"
REASON_CHARS = 160

HEAD = """# The official SDK's own tests

`make conformance` downloads the source of `{release}`, whose tests ship inside, and runs its live tests
of the clients for threads and for tasks against our server. Their files are not changed: small stand-ins
(`tests/sdk_suite/stand_ins.py`) take the place of what would make namespaces and queues in the cloud, and every test
gets a namespace of its own. This page is written by that command.

{summary}

* **passed**: as it is, against our server.
* **failed**: and why.
* **skipped**: the SDK's own mark says that it is not run, or may fail.
* **not applicable**: it does not fit the released SDK; and why.

"""

PROXY_TITLE = "## Through the proxy"
PROXY_SECTION = """{title}

`make conformance-proxy` runs the same tests once more, with a proxy in front of every namespace, and writes this
section. Tests that log in with an identity use a key of the proxy here: a proxy knows its own keys only.

{summary} {comparison}
"""


@dataclass(frozen=True)
class Result:
    file: str
    name: str
    outcome: str
    shown: str
    """What pytest said, in a line."""
    is_proxied: bool = False
    is_repeated: bool = False
    """Whether it passed only when it was run again, alone; `shown` is what it said before."""

    @property
    def status(self) -> str:
        return NOT_OURS if self.outcome == FAILED and self.base_name in NOT_APPLICABLE else self.outcome

    @property
    def base_name(self) -> str:
        """The name of the test for threads, of which most of those for tasks are copies."""
        return self.name.replace("_async", "").replace("async_", "")

    @property
    def key(self) -> str:
        """Some tests for tasks are called as those for threads."""
        return f"{self.file}: {self.name}"

    @property
    def why(self) -> str:
        if self.is_repeated:
            return f"when run again, alone; first: {self.shown}"
        if self.outcome == PASSED:
            return ""
        return self._reason or self.shown

    @property
    def is_strange(self) -> bool:
        """Whether it failed, and nobody has said why."""
        return self.outcome == FAILED and self._reason is None

    @property
    def _reason(self) -> str | None:
        name = self.base_name
        found = NOT_APPLICABLE.get(name) or FAILS.get(name)
        return FAILS_THROUGH_PROXY.get(name, found) if self.is_proxied else found


def read_results(file: Path, is_proxied: bool = False) -> list[Result]:
    """What pytest wrote about each test, by file and name."""
    cases = ElementTree.parse(file).getroot().iter("testcase")  # our own pytest has written it
    return sorted([_result(case, is_proxied) for case in cases], key=lambda result: (result.file, result.name))


def run_again(first: list[Result], again: list[Result]) -> list[Result]:
    """The results of a run, of which some tests were run again: what passed then has passed."""
    passed = {each.key for each in again if each.outcome == PASSED}
    return [
        replace(each, outcome=PASSED, is_repeated=True) if each.is_strange and each.key in passed else each
        for each in first
    ]


def _result(case: ElementTree.Element, is_proxied: bool) -> Result:
    file = next(part for part in case.attrib["classname"].split(".") if part.startswith("test_"))
    name = case.attrib["name"].replace("[pyamqp]", "")
    for tag, outcome in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
        found = case.find(tag)
        if found is not None:
            return Result(file, name, outcome, _said(found), is_proxied)
    return Result(file, name, PASSED, "", is_proxied)


def _said(found: ElementTree.Element) -> str:
    if found.tag == "skipped":
        why = " ".join(found.attrib.get("message", "").split())[:REASON_CHARS].replace("|", "/")
        is_expected = found.attrib.get("type") == "pytest.xfail"
        return f"{'the SDK expects it to fail' if is_expected else 'the SDK skips it itself'}: {why}"
    return " ".join(found.attrib.get("message", "").split())[:REASON_CHARS].replace("|", "/")


class Page(NamedTuple):
    direct: str
    proxied: str
    """The section about runs through the proxy; empty: there was none yet."""
    statuses: dict[str, str]
    """Of each test, by its key, without a proxy."""

    @property
    def text(self) -> str:
        return f"{self.direct}\n{self.proxied}" if self.proxied else self.direct


def read_page(text: str) -> Page:
    direct, title, proxied = text.partition(PROXY_TITLE)
    statuses, file = {}, ""
    for line in direct.splitlines():
        if line.startswith("## "):
            file = line.removeprefix("## ")
        elif line.startswith("| `"):
            name, status, *_ = line.split(" | ")
            statuses[f"{file}: {name.strip('| `')}"] = status
    return Page(direct.rstrip() + "\n", title + proxied, statuses)


def counted(results: list[Result]) -> dict[str, Any]:
    """How many passed and failed, and what did not pass at once: for the page of all clients."""
    others = [result for result in results if result.status != PASSED or result.is_repeated]
    rows = [{"file": each.file, "name": each.name, "status": each.status, "why": each.why} for each in others]
    return {**{word: Counter(each.status for each in results)[word] for word in (PASSED, FAILED)}, "others": rows}


def through_proxy(results: list[Result], direct: dict[str, str]) -> str:
    """The section about these results, beside those without a proxy."""
    different = [result for result in results if result.status != direct.get(result.key)]
    rows = [f"| `{each.name}` | {direct.get(each.key)} | {each.status} | {each.why} |" for each in different]
    comparison = "Every test has the same result as above."
    if rows:
        heads = ["| test | without | through the proxy | why |", "|---|---|---|---|"]
        comparison = "\n".join(["All but these have the same result as above:", "", *heads, *rows])
    return PROXY_SECTION.format(title=PROXY_TITLE, summary=_summary(results), comparison=comparison)


def written_page(release: str, results: list[Result]) -> str:
    return HEAD.format(release=release, summary=_summary(results)) + "\n".join(
        _table(file, [result for result in results if result.file == file])
        for file in dict.fromkeys(result.file for result in results)
    )


def _summary(results: list[Result]) -> str:
    counts = Counter(result.status for result in results)
    said = ", ".join(f"{counts[each]} {each}" for each in (PASSED, FAILED, SKIPPED, NOT_OURS))
    repeated = ", ".join(f"`{result.name}`" for result in results if result.is_repeated)
    more = f"\nPassed only when run again, one at a time: {repeated}." if repeated else ""
    return f"Of {len(results)} tests {said}.{more}"


def _table(file: str, results: list[Result]) -> str:
    rows = [f"| `{result.name}` | {result.status} | {result.why} |" for result in results]
    return "\n".join([f"## {file}", "", "| test | result | why |", "|---|---|---|", *rows, ""])
