"""How the syphon gets in, with real namespaces: TLS, tokens of an issuer, tokens that end, keys without the right."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from azure.core.credentials import AccessToken
from backlog_messages import backlog_message
from syphon_environment import (
    QUICK,
    WAIT_S,
    backlog,
    dial,
    fill,
    ids_of,
    messages_at,
    until,
    with_backlog,
)
from token_makers import secret_signer, web_token

from twinbus.broker.auth.jwt import JwtIssuer
from twinbus.client.namespace import Namespace
from twinbus.syphon import Alert, Syphon, SyphonOptions, syphon
from twinbus.testing import LocalNamespace, NamespacePair
from twinbus.transport import tokens
from twinbus.transport.dial import CbsToken, Dial

ISSUER, SECRET = "https://issuer.test", "a secret that the issuer and the namespaces share"


@pytest.fixture
def pair(namespace_pair: NamespacePair) -> NamespacePair:
    return with_backlog(namespace_pair)


async def test_over_tls(pair: NamespacePair) -> None:
    def tls_dial(namespace: LocalNamespace) -> Dial:
        text = namespace.connection_string.replace("UseDevelopmentEmulator=true", "").replace(";;", ";")
        return Namespace.from_connection_string(text).dial()

    await fill(pair.secondary, 0, [backlog_message("orders", f"m{n}") for n in range(100)])
    dials = tls_dial(pair.primary), tls_dial(pair.secondary)
    assert dials[0].tls is not None
    result = await asyncio.wait_for(syphon(*dials, "contoso", 2, SyphonOptions(until_empty=True)), WAIT_S)
    assert result.moved == 100


class WebTokens:
    """A token credential as those of azure-identity, of an issuer that the namespaces believe."""

    def get_token(self, *_scopes: str, **_: Any) -> AccessToken:
        until = int(time.time()) + 600
        roles = ["Azure Service Bus Data Owner"]
        claims = {"iss": ISSUER, "aud": "https://servicebus.azure.net", "exp": until, "roles": roles}
        return AccessToken(web_token({"alg": "HS256", "typ": "JWT"}, claims, secret_signer(SECRET)), until)


async def test_with_web_tokens_instead_of_keys() -> None:
    issuers = [JwtIssuer(ISSUER, "HS256", SECRET)]
    with (
        LocalNamespace("contoso", queues=["orders"], jwt_issuers=issuers) as primary,
        LocalNamespace("backup", queues=[backlog(0)], jwt_issuers=issuers) as secondary,
    ):
        await fill(secondary, 0, [backlog_message("orders", f"m{n}") for n in range(20)])
        dials = [
            Namespace(f"localhost:{each.port}", WebTokens(), name=each.name, connection_verify=str(each.ca_file)).dial()
            for each in (primary, secondary)
        ]
        options = SyphonOptions(until_empty=True, **QUICK)
        result = await asyncio.wait_for(syphon(dials[0], dials[1], "contoso", 1, options), WAIT_S)
        assert result.moved == 20


async def test_tokens_are_renewed_before_they_end(pair: NamespacePair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Well before: a busy machine may take seconds for it."""
    monkeypatch.setattr(tokens, "_RENEW_AT_PART", 0.25)
    given: list[str] = []
    life_s = 6

    def short_lived(one: Dial) -> Dial:
        def get_token(audience: str) -> CbsToken:
            given.append(audience)
            token = one.get_token(audience)
            fields = dict(part.split("=", 1) for part in token.text.partition(" ")[2].split("&"))
            ends = str(int(time.time()) + life_s)
            secret = secrets[one.port]
            signed = f"{fields['sr']}\n{ends}".encode()
            signature = base64.b64encode(hmac.new(secret.encode(), signed, hashlib.sha256).digest())
            text = f"SharedAccessSignature sr={fields['sr']}&sig={quote_plus(signature)}&se={ends}&skn={fields['skn']}"
            return CbsToken(text, token.type, float(ends))

        return replace(one, get_token=get_token)

    secrets = {
        namespace.port: dict(part.split("=", 1) for part in namespace.connection_string.split(";"))["SharedAccessKey"]
        for namespace in pair
    }
    chosen = SyphonOptions(**QUICK)
    alerts: list[Alert] = []
    pump = Syphon(
        short_lived(dial(pair.primary)), short_lived(dial(pair.secondary)), "contoso", 2, chosen, on_alert=alerts.append
    )
    async with pump:
        began = time.monotonic()
        for round_ in takewhile(lambda _: time.monotonic() < began + life_s, count()):
            await fill(pair.secondary, 0, [backlog_message("orders", f"m{round_}")])
            await until(lambda wanted=round_ + 1: pump.current_progress().moved == wanted)  # type: ignore[misc]
            before = len(given)
            await until(lambda least=before + 3: len(given) >= least)  # type: ignore[misc]
    assert alerts == []


async def test_a_key_without_the_right_is_reported_and_costs_nothing(tmp_path: Path) -> None:
    with (
        LocalNamespace("contoso", queues=["orders"], rules=["reader:Listen"]) as primary,
        LocalNamespace("backup", queues=[backlog(0)], data=tmp_path) as secondary,
    ):
        await fill(secondary, 0, [backlog_message("orders", "m1")])
        reader = Namespace.from_connection_string(primary.connection_string_for("reader")).dial()
        alerts: list[Alert] = []
        options = SyphonOptions(**QUICK)
        async with Syphon(reader, dial(secondary), "contoso", 1, options, on_alert=alerts.append) as pump:
            await until(lambda: pump.current_progress().released >= 1)
        assert alerts[0].name == "destination_down"
        assert "unauthorised" in alerts[0].text
        assert ids_of(await messages_at(secondary, backlog(0), 1)) == ["m1"]
