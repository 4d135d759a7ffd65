"""One outage behind a proxy, with two official clients: what `make test` runs of `make test-languages`."""

from __future__ import annotations

from pathlib import Path

import pytest

from languages.clients import LANGUAGES, NotReady, prepare
from languages.proxied_pair import OUTAGES, run_through


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["python", "javascript"])
def test_a_client_sends_on_while_the_primary_is_killed_and_receives_everything(name: str, tmp_path: Path) -> None:
    try:
        command = prepare(LANGUAGES[name])
    except NotReady as error:
        pytest.skip(str(error))
    options = ("--failover-interval", "0s", "--ping-primary-interval", "1s", "--backlog-queue-count", "2")
    count = run_through(tmp_path, OUTAGES["killed"], {name: command}, *options)[name]
    assert (count.missing, count.unannounced, count.sent.failed) == ([], {}, {})
