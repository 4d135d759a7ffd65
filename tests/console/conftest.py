"""One browser for all tests of the console, and a pair for each that needs one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from console_scene import browser as chromium
from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened
