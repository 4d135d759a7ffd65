"""What the proxy says when the primary is away is what official clients retry by themselves; the page says so, too.

`make proxy-conditions` tries every condition in every case, and writes the page. Here are those that the proxy uses.
"""

from __future__ import annotations

import pytest

from languages.clients import LANGUAGES, NotReady, prepare
from languages.conditions import CLIENTS, CONDITIONS, LOST, RAISED, RETRIED, SITUATIONS, observe, verdicts_on_page
from twinbus.client.native.failures import RETRIED as FAILED_SEND
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.proxy.relay.upstream_port import LINK_LOST, TIMED_OUT, loss_of

USED = {
    "send": FAILED_SEND,
    "batch": FAILED_SEND,
    "schedule": TIMED_OUT,
    "peek": TIMED_OUT,
    "receiver": LINK_LOST,
    "detach": LINK_LOST,
    "loop": LINK_LOST,
}
"""The condition that the proxy uses, by case."""
RAISED_ALL_THE_SAME = {("java", "schedule"), ("java", "peek")}
"""The Java client repeats no request to `$management`, whatever the condition."""


@pytest.mark.languages
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_retries_what_the_proxy_says(name: str) -> None:
    try:
        prepare(LANGUAGES[name])
    except NotReady as error:
        pytest.skip(str(error))
    wanted: dict[str, str] = {}
    seen: dict[str, str] = {}
    for condition in sorted(set(USED.values())):
        cases = tuple(case for case, used in USED.items() if used == condition)
        table = observe(name, (condition,), cases)
        seen |= {case: table[condition][case].verdict for case in cases}
        wanted |= {case: RAISED if (name, case) in RAISED_ALL_THE_SAME else RETRIED for case in cases}
    if name == "go" and seen["detach"] != RAISED:
        seen["detach"] = RETRIED  # it returns nothing, without an error, and receives again when it is asked again
    assert seen == wanted


def test_the_page_has_every_case_and_agrees_about_what_the_proxy_says() -> None:
    page = verdicts_on_page()
    assert set(page) == {(case, each, name) for case in SITUATIONS for each in CONDITIONS for name in CLIENTS}
    for case, condition in USED.items():
        for name in CLIENTS:
            is_raised = (name, case) in RAISED_ALL_THE_SAME
            assert (page[case, condition, name] == RAISED) is is_raised, (case, name)


def test_a_condition_after_which_receivers_were_lost_never_reaches_one_in_a_detach() -> None:
    page = verdicts_on_page()
    lost = {condition for (case, condition, _), verdict in page.items() if case == "loop" and verdict == LOST}
    told = {loss_of(Failure(FailureKind.INTERNAL, "gone", condition)).condition for condition in lost}
    assert told <= {LINK_LOST}
