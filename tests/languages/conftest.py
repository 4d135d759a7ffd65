"""Clients in six forms: which test gets which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from languages.clients import LANGUAGES, Client, NotReady, prepare

StartClient = Callable[[str, str], Client]
"""By the name of a language and a connection string."""


@pytest.fixture
def start_client(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartClient]:
    """Starts programs; they are killed at the end. Skips where the tools of a language are not installed."""
    started: list[Client] = []

    def start(name: str, connection_string: str) -> Client:
        language = LANGUAGES[name]
        try:
            command = prepare(language)
        except NotReady as error:
            pytest.skip(str(error))
        client = Client(language, command, connection_string, tmp_path / f"{name}-{len(started)}.log")
        started.append(client)
        return client

    yield start
    for client in started:
        client.kill()
