"""Unmodified official clients send and receive through a proxy while the primary, or both sides, are away (X1, X2, X5).

All clients go through the same outage, each with a queue of its own. Each test looks at what became of the messages of
one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from languages.clients import LANGUAGES, NotReady, prepare
from languages.proxied_pair import OUTAGES, Count, run_through

pytestmark = [pytest.mark.languages, pytest.mark.timeout(1_200)]

AT_ONCE = ("--failover-interval", "0s", "--ping-primary-interval", "1s")
LATER = ("--failover-interval", "4s", "--ping-primary-interval", "1s")

CountOf = Callable[[str, str, tuple[str, ...]], Count]


@pytest.fixture(scope="module")
def count_of(tmp_path_factory: pytest.TempPathFactory) -> CountOf:
    """What became of a client's messages, by its name, an outage and options of the proxy. Each outage is made once."""

    @cache
    def commands() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, language in LANGUAGES.items():
            try:
                found[name] = prepare(language)
            except NotReady as error:
                missing[name] = str(error)
        return found

    missing: dict[str, str] = {}

    @cache
    def run(outage: str, options: tuple[str, ...]) -> dict[str, Count]:
        return run_through(tmp_path_factory.mktemp("outage"), OUTAGES[outage], commands(), *options)

    def count(name: str, outage: str, options: tuple[str, ...]) -> Count:
        commands()
        if name in missing:
            pytest.skip(missing[name])
        return run(outage, options)[name]

    return count


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("outage", OUTAGES)
def test_nothing_accepted_is_missing_and_no_copy_is_unannounced(count_of: CountOf, outage: str, name: str) -> None:
    count = count_of(name, outage, AT_ONCE)
    assert count.missing == []
    assert count.unannounced == {}
    assert count.accepted_meanwhile > 0, "sending goes on"


@pytest.mark.parametrize("name", [name for name in LANGUAGES if name != "proton"])
@pytest.mark.parametrize("outage", ["killed", "refused"])
def test_what_fails_before_failover_is_sent_again_by_the_client_itself(
    count_of: CountOf, outage: str, name: str
) -> None:
    count = count_of(name, outage, LATER)
    assert count.missing == []
    assert count.unannounced == {}
    assert count.sent.failed == {}, "its own retries last longer than the interval"
