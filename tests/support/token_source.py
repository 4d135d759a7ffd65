"""Where azure-identity gets its tokens from in tests: the endpoint of a managed identity, and an `az` of our own.

Both speak the protocol that the real ones do, so that azure-identity itself is what is asked.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from token_makers import secret_signer, web_token

from twinbus.broker.auth.jwt import JwtIssuer
from twinbus.testing import LocalNamespace

ISSUER = "https://login.example.com/"
SECRET = "at least thirty-two bytes that nobody guesses"
AUDIENCE = "https://servicebus.azure.net"
OWNER = "Azure Service Bus Data Owner"
HEADER = "secret-of-the-machine"


def issuer() -> JwtIssuer:
    return JwtIssuer(ISSUER, "HS256", SECRET)


def token(*roles: str, life_s: int = 3_600) -> tuple[str, int]:
    """A signed token, and when it ends."""
    until_s = int(time.time()) + life_s
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": until_s, "roles": list(roles)}
    return web_token({"alg": "HS256", "typ": "JWT"}, claims, secret_signer(SECRET)), until_s


@dataclass
class IdentityEndpoint:
    """The endpoint of managed identities as Azure App Service has it."""

    port: int = 0
    roles: dict[str, Sequence[str]] = field(default_factory=dict)
    """By client id; one that is not listed is an owner."""
    asked: list[str] = field(default_factory=list)
    """The client ids that asked, in order; empty: none was named."""

    @property
    def environment(self) -> dict[str, str]:
        """What tells azure-identity where to ask."""
        return {"IDENTITY_ENDPOINT": f"http://127.0.0.1:{self.port}/token", "IDENTITY_HEADER": HEADER}


@contextmanager
def identity_endpoint(**roles: Sequence[str]) -> Iterator[IdentityEndpoint]:
    endpoint = IdentityEndpoint(roles=dict(roles))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            (resource,), client_id = query["resource"], query.get("client_id", [""])[0]
            is_known = self.headers["X-IDENTITY-HEADER"] == HEADER and resource.rstrip("/") == AUDIENCE
            endpoint.asked.append(client_id)
            text, until_s = token(*endpoint.roles.get(client_id, [OWNER]))
            said = {"access_token": text, "expires_on": str(until_s), "resource": resource, "token_type": "Bearer"}
            body = json.dumps(said if is_known else {"statusCode": 401}).encode()
            self.send_response(200 if is_known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, name="test-identity", daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_az(folder: Path, *roles: str) -> Path:
    """An `az` that is logged in, with these roles; it notes every call in `az.calls` beside it."""
    text, until_s = token(*roles)
    said = json.dumps({"accessToken": text, "expires_on": until_s, "expiresOn": "2031-03-09 14:05:00.000000"})
    calls = folder / "az.calls"
    program = folder / "az"
    note = f"open({str(calls)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))"
    program.write_text(f"#!{sys.executable}\nimport sys\n{note}\nprint({said!r})\n")
    program.chmod(0o755)
    return calls


def keyless(namespace: LocalNamespace) -> str:
    """How to get there over TLS, without a key."""
    return f"Endpoint=sb://localhost:{namespace.port};TwinbusNamespace={namespace.name};TwinbusCA={namespace.ca_file}"
