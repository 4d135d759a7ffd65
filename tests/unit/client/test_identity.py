"""Credentials of azure-identity by name; tokens are kept until shortly before their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken

from twinbus.client.identity import KINDS, RENEW_BEFORE_S, CachedCredential, identity

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "how-to" / "entra-id.md"


class Counting:
    """A credential whose tokens say how many there were before, and live for an hour of its own clock."""

    def __init__(self) -> None:
        self.now, self.asked = 1_000.0, list[tuple[str, ...]]()

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.asked.append(scopes)
        return AccessToken(f"token {len(self.asked)}", int(self.now) + 3_600)


def test_a_token_is_asked_for_again_shortly_before_its_end() -> None:
    source = Counting()
    credential = CachedCredential(source, lambda: source.now)
    assert [credential.get_token("a").token for _ in range(3)] == ["token 1"] * 3
    assert credential.get_token("b").token == "token 2"
    source.now += 3_600 - RENEW_BEFORE_S - 1
    assert credential.get_token("a").token == "token 1"
    source.now += 1
    assert credential.get_token("a").token == "token 3"


def test_a_token_with_claims_is_always_a_new_one() -> None:
    """The service has refused the last one."""
    source = Counting()
    credential = CachedCredential(source, lambda: source.now)
    assert [credential.get_token("a").token, credential.get_token("a", claims="x").token] == ["token 1", "token 2"]


@pytest.mark.parametrize("name", sorted(set(KINDS) - {"workload"}))
def test_every_name_stands_for_a_credential_of_azure_identity(name: str) -> None:
    assert type(identity(name)._credential).__name__ == KINDS[name].class_name


def test_the_page_names_every_credential() -> None:
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `") and "--" not in line
    ]
    ids = {True: "[:CLIENT-ID]", False: ""}
    assert rows == [
        f"| `{name}{ids[kind.takes_client_id]}` | `{kind.class_name}` | {kind.meaning} |"
        for name, kind in KINDS.items()
    ]
