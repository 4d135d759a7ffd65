"""`docs/sdk-suite.md`: results without and through a proxy, side by side; each difference has a reason."""

from __future__ import annotations

import pytest
from conformance_page import ROOT

from sdk_suite.known_outcomes import FAILS_THROUGH_PROXY
from sdk_suite.suite_page import FAILED, PASSED, Result, counted, read_page, run_again, through_proxy, written_page

WRITTEN = (ROOT / "docs" / "sdk-suite.md").read_text(encoding="utf-8")
KEY_TEST = next(iter(FAILS_THROUGH_PROXY))


def results(*failed: str, is_proxied: bool = False) -> list[Result]:
    names = ("test_one", "test_two", KEY_TEST)
    return [
        Result("test_queues", name, FAILED if name in failed else PASSED, "it said no", is_proxied) for name in names
    ]


def test_either_run_leaves_the_part_of_the_other_as_it_is() -> None:
    page = read_page(written_page("the-sdk==1", results()))
    both = read_page(page._replace(proxied=through_proxy(results(KEY_TEST, is_proxied=True), page.statuses)).text)
    assert (both.direct, both.statuses) == (page.direct, page.statuses)
    assert "\n\n## Through the proxy\n\n" in both.text
    assert read_page(both.text).text == both.text
    again = read_page(both._replace(direct=written_page("the-sdk==2", results("test_one"))).text)
    assert again.proxied == both.proxied
    assert again.statuses["test_queues: test_one"] == FAILED


def test_only_what_has_another_result_is_listed() -> None:
    direct = read_page(written_page("the-sdk==1", results("test_one"))).statuses
    section = through_proxy(results("test_one", KEY_TEST, is_proxied=True), direct)
    assert [line for line in section.splitlines() if line.startswith("| `")] == [
        f"| `{KEY_TEST}` | passed | failed | {FAILS_THROUGH_PROXY[KEY_TEST]} |"
    ]
    assert "Every test has the same result" in through_proxy(results("test_one", is_proxied=True), direct)


@pytest.mark.parametrize(("name", "is_strange"), [(KEY_TEST, False), ("test_two", True)])
def test_a_failure_that_nobody_has_explained_is_noticed(name: str, is_strange: bool) -> None:
    (found,) = [result for result in results(name, is_proxied=True) if result.name == name]
    assert found.is_strange is is_strange
    (direct,) = [result for result in results(name) if result.name == name]
    assert direct.is_strange, "a reason that is about the proxy explains nothing without one"


def test_the_page_lists_exactly_the_differences_that_are_known() -> None:
    section = read_page(WRITTEN).proxied
    listed = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
    known = {Result("", name, FAILED, "").base_name for name in listed}
    assert known == set(FAILS_THROUGH_PROXY)


def test_what_passes_when_it_is_run_again_alone_is_named_with_what_it_said_first() -> None:
    first = results("test_one", "test_two")
    found = run_again(first, [*results("test_two")[:2], Result("test_topic", "test_two", PASSED, "")])
    page = written_page("the-sdk==1", found)
    assert "2 passed, 1 failed" in page
    assert "Passed only when run again, one at a time: `test_one`." in page
    assert "| `test_one` | passed | when run again, alone; first: it said no |" in page
    assert "| `test_two` | failed | it said no |" in page
    assert [row["name"] for row in counted(found)["others"]] == ["test_one", "test_two"]
