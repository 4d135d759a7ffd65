"""The paired client with the oldest and the newest version of the official SDK that the package allows.

It needs a package index: `make test-sdk-versions` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from twinbus.client.sdk.internals.required_parts import NEWEST, OLDEST, PACKAGE

pytestmark = [pytest.mark.sdk_versions, pytest.mark.timeout(1_500)]

ROOT = Path(__file__).parents[2]
REQUIREMENTS = {
    "oldest": f"{PACKAGE}=={'.'.join(map(str, OLDEST))}.0",
    "newest": f"{PACKAGE}=={'.'.join(map(str, NEWEST))}.*",
}
SMOKE = (
    "tests/unit/client/test_sdk_internals.py",
    "tests/unit/client/test_messages.py",
    "tests/unit/client/test_sdk_failures.py",
    "tests/interop/test_encoded_messages_sdk.py",
    "tests/interop/test_pair_failover.py",
    "tests/interop/test_pair_batches_and_schedules.py",
    "tests/interop/test_pair_receivers.py",
    "tests/interop/test_pair_close.py",
    "tests/interop/test_pair_probe.py",
)
"""Everything that reaches into the SDK: opening, sending, batches, schedules, hanging, closing, receiving, errors."""


@pytest.mark.parametrize("which", REQUIREMENTS)
def test_the_client_works_with_this_version(which: str, tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, "--target", str(tmp_path), REQUIREMENTS[which]], check=True, timeout=600)
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "-m", "long or not long", *SMOKE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "TWINBUS_TESTED_SDK": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-5_000:] + found.stderr[-2_000:]
