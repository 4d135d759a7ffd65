"""The page about keys and tokens: its commands exist, its limits are those of the code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from twinbus.broker.auth.claims import CLAIMS_MAX
from twinbus.broker.auth.jwt import ALGORITHMS, ROLES, SECRET_BYTES_MIN, SERVICE_AUDIENCE
from twinbus.cli.arguments.credentials import FIELDS

PAGE = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "tokens.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [code for kind, code in BLOCKS if kind == language]


def test_options_and_fields_exist() -> None:
    shown = subprocess.run([sys.executable, "-m", "twinbus", "serve", "--help"], capture_output=True, text=True)
    for option in set(re.findall(r"--[a-z][a-z-]+", PAGE)):
        assert option in shown.stdout
    for line in blocks("sh"):
        assert shlex.split(line)[:2] == ["twinbus", "serve"]
    (issuer,) = map(json.loads, blocks("json"))
    assert set(issuer) <= set(FIELDS)
    assert issuer["audience"] == SERVICE_AUDIENCE


def test_names_and_numbers_are_those_of_the_code() -> None:
    for word in (*ALGORITHMS, str(CLAIMS_MAX), str(SECRET_BYTES_MIN)):
        assert word in PAGE
    for role, right in ROLES.items():
        assert f"{role}` ({right.value})".lower() in PAGE.lower()
