"""One outage behind a proxy, with two official clients: what `make test` runs of `make test-languages`."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from languages.clients import LANGUAGES, NotReady, prepare
from languages.proxied_pair import OUTAGES, Count, run_through

CLIENTS = ("python", "javascript")
OUTAGE_S = 3.0


class Run(NamedTuple):
    counts: dict[str, Count]
    not_ready: dict[str, str]
    """What is missing here to run a client."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One outage for both clients, each with a queue of its own."""
    commands, not_ready = {}, {}
    for name in CLIENTS:
        try:
            commands[name] = prepare(LANGUAGES[name])
        except NotReady as error:
            not_ready[name] = str(error)
    options = ("--failover-interval", "0s", "--ping-primary-interval", "1s", "--backlog-queue-count", "2")
    folder = tmp_path_factory.mktemp("short-outage")
    return Run(run_through(folder, OUTAGES["killed"], commands, *options, outage_s=OUTAGE_S), not_ready)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_sends_on_while_the_primary_is_killed_and_receives_everything(run: Run, name: str) -> None:
    if name in run.not_ready:
        pytest.skip(run.not_ready[name])
    count = run.counts[name]
    assert count.accepted_meanwhile > 0
    assert (count.missing, count.unannounced, count.sent.failed) == ([], {}, {})
