"""Two namespaces in processes of their own for all tests of pairing that a worker runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from paired import BOTH, SYNC, Stage
from served import ISSUER_NAME, ISSUER_SECRET, Served

RULES = ("--rule", "sender:Send", "--rule", "reader:Listen")
ENTITIES = "entities"
ISSUER = {"issuer": ISSUER_NAME, "algorithm": "HS256", "key": ISSUER_SECRET}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{ENTITIES}: pairing with every kind of entity; only `make test-entities` runs them"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The whole matrix only where it is asked for."""
    if ENTITIES not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker(ENTITIES) is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker(ENTITIES) is None]


@pytest.fixture(scope="session")
def served_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    data = tmp_path_factory.mktemp("served")
    issuer = data / "issuer.json"
    issuer.write_text(json.dumps(ISSUER))
    options = (*RULES, "--jwt-issuer", str(issuer))
    with Served("contoso", data, *options) as primary, Served("backup", data, *options) as secondary:
        yield primary, secondary


@pytest.fixture
def stage(served_pair: tuple[Served, Served]) -> Iterator[Stage]:
    """For tests with the client on threads."""
    made = Stage(*served_pair, SYNC)
    yield made
    made.leave()


@pytest.fixture(params=BOTH)
def both(request: pytest.FixtureRequest, served_pair: tuple[Served, Served]) -> Iterator[Stage]:
    """The same for tests that are run with each client: on threads and on tasks."""
    made = Stage(*served_pair, request.param)
    yield made
    made.leave()
