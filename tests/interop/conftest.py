"""Two namespaces in processes of their own for all tests of pairing that a worker runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_proxy import ProxiedNamespace
from paired import BOTH, SYNC, PairHarness
from prompt_sdk import close_at_once
from proxy_differences import FILES, difference_of
from served import ISSUER_NAME, ISSUER_SECRET, Served

import twinbus.testing

if os.environ.get("TWINBUS_SEEDS") != "all" and "TWINBUS_TESTED_SDK" not in os.environ:
    close_at_once()  # `make test-all` and `make test-sdk-versions` run the SDK as it is

IS_PROXIED = "TWINBUS_THROUGH_PROXY" in os.environ  # `make test-proxy`
if IS_PROXIED:
    twinbus.testing.LocalNamespace = ProxiedNamespace  # type: ignore[misc]

RULES = ("--rule", "sender:Send", "--rule", "reader:Listen")
ISSUER = {"issuer": ISSUER_NAME, "algorithm": "HS256", "key": ISSUER_SECRET}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return True if IS_PROXIED and collection_path.is_file() and collection_path.name not in FILES else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What has another result through a proxy is expected to have it: a list that is not true any more is noticed."""
    for item in items if IS_PROXIED else ():
        reason = difference_of(f"{item.path.name}::{item.name}")
        if reason is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))


@pytest.fixture(scope="session")
def served_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    data = tmp_path_factory.mktemp("served")
    issuer = data / "issuer.json"
    issuer.write_text(json.dumps(ISSUER))
    options = (*RULES, "--jwt-issuer", str(issuer))
    with Served("contoso", data, *options) as primary, Served("backup", data, *options) as secondary:
        yield primary, secondary


@pytest.fixture
def harness(served_pair: tuple[Served, Served]) -> Iterator[PairHarness]:
    """For tests with the client on threads."""
    made = PairHarness(*served_pair, SYNC)
    yield made
    made.leave()


@pytest.fixture(params=BOTH)
def both(request: pytest.FixtureRequest, served_pair: tuple[Served, Served]) -> Iterator[PairHarness]:
    """The same for tests that are run with each client: on threads and on tasks."""
    made = PairHarness(*served_pair, request.param)
    yield made
    made.leave()
