"""A small part of `make conformance`, in every run of the tests: the official clients of Python and JavaScript."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from conformance_clients.checks import CHECKS, NOT_OFFERED
from conformance_clients.clients_page import PAGE, page
from conformance_clients.programs_run import LANGUAGES, run_program, running_bus
from conformance_clients.results import DIRECT, PROXIED, read_found
from languages.clients import NotReady, prepare
from sdk_suite import run as suite

OF_THE_SDK = (
    "test_queue_message_settle_through_mgmt_link or test_session_non_session_send or test_mgmt_sub_create_w_fwd_to or "
    "test_async_queue_message_duplicate_detection or test_async_mgmt_rule_list_and_delete or "
    "test_list_queue_sessions_empty or test_async_mgmt_queue_update_success or test_mgmt_topic_update_success"
)
OF_JAVASCRIPT = (
    *("send-single", "send-batch", "send-large", "send-too-large", "schedule", "properties", "duplicates", "abandon"),
    *("dead-letter", "defer", "receive-and-delete", "peek", "session-accept", "session-state", "session-settle"),
    *("filter-sql", "filter-correlation", "action", "rule-manager", "admin-queue", "admin-rules", "admin-errors"),
    *("websocket", "wrong-key", "missing-right", "no-such-entity", "full", "disabled", "busy", "busy-once"),
)


@pytest.mark.timeout(300)
def test_the_sdks_own_tests_pass_as_far_as_they_are_quick(tmp_path: Path) -> None:
    try:
        tests = suite.fetched()
    except SystemExit as error:
        pytest.skip(f"the source of the SDK cannot be fetched: {error}")
    results = tmp_path / "results.xml"
    suite.run(tests, results, ["-k", OF_THE_SDK], is_proxied=False, workers="0")
    cases = list(ElementTree.parse(results).getroot().iter("testcase"))  # our own pytest has written it
    failed = {case.attrib["name"]: case.findtext("failure") for case in cases if case.find("failure") is not None}
    assert not failed
    assert len(cases) >= len(OF_THE_SDK.split(" or "))


@pytest.mark.timeout(300)
def test_the_javascript_client_does_what_it_promises_as_far_as_that_is_quick(tmp_path: Path) -> None:
    language = LANGUAGES["javascript"]
    try:
        command = prepare(language)
    except NotReady as error:
        pytest.skip(str(error))
    with running_bus(tmp_path, is_proxied=False) as bus:
        found = list(run_program(language, command, bus, tmp_path / "log", OF_JAVASCRIPT))
    assert {each.check: each.evidence for each in found if not each.passed} == {}
    assert {each.check for each in found} == set(OF_JAVASCRIPT)


def test_the_page_shows_what_the_runs_have_found() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read_found())


def test_each_program_has_passed_every_check_that_its_client_offers_both_ways() -> None:
    found = read_found()
    for language, not_offered in NOT_OFFERED.items():
        for way in (DIRECT, PROXIED):
            passed = {check for check, row in found[language][way].items() if row["passed"]}
            assert passed == set(found[language][way]) == set(CHECKS) - set(not_offered)


def test_of_the_sdks_own_tests_98_of_100_have_passed_both_ways() -> None:
    for way in (DIRECT, PROXIED):
        rows = read_found()["python"][way]
        assert rows["passed"] >= 0.98 * (rows["passed"] + rows["failed"])
