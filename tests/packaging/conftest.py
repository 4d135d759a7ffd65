"""The archives that people install, built once for all tests below."""

from __future__ import annotations

import pytest
from archives import Archives, build


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return build(tmp_path_factory.mktemp("dist"))
