"""Who runs what, when tests run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

SPARK_TESTS = ("tests/spark/", "with_spark")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Every test by itself, in order; but all that need Spark in one worker, and first: they share one session.

    The groups of `--dist loadgroup` would do the same, but are lost with some versions of pytest.
    """
    from xdist.scheduler import LoadScopeScheduling

    class SparkTogether(LoadScopeScheduling):  # type: ignore[misc]  # untyped
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if any(part in nodeid for part in SPARK_TESTS) else nodeid

    return SparkTogether(config, log)
