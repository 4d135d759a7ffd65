"""JSON web tokens: believed from a configured issuer, and from nobody else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from token_makers import Signer, curve_signer, public_pem, rsa_signer, secret_signer, web_token

from twinbus.broker.auth.claims import Claim
from twinbus.broker.auth.jwt import CLOCK_SKEW_MS, SERVICE_AUDIENCE, JwtIssuer, check_jwt
from twinbus.broker.operations import Right
from twinbus.errors import OptionsError, Unauthorized

SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE
NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
SECRET = "a secret of at least thirty-two bytes"

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE_KEY = ec.generate_private_key(ec.SECP256R1())
ISSUERS = {
    "HS256": JwtIssuer("https://issuer", "HS256", SECRET),
    "RS256": JwtIssuer("https://issuer", "RS256", public_pem(RSA_KEY)),
    "ES256": JwtIssuer("https://issuer", "ES256", public_pem(CURVE_KEY)),
}
SIGNERS: dict[str, Signer] = {
    "HS256": secret_signer(SECRET),
    "RS256": rsa_signer(RSA_KEY),
    "ES256": curve_signer(CURVE_KEY),
}
GOOD: dict[str, Any] = {"iss": "https://issuer", "aud": SERVICE_AUDIENCE, "exp": NOW_S + 3600, "rights": ["Send"]}


def token(said: Any = None, header: Any = None, sign: Signer = SIGNERS["HS256"]) -> str:
    return web_token({"alg": "HS256", "typ": "JWT"} if header is None else header, GOOD if said is None else said, sign)


def check(text: str, *issuers: JwtIssuer, now_ms: int = NOW_MS) -> Claim:
    return check_jwt(text, "orders", issuers or (ISSUERS["HS256"],), now_ms)


def refusal(text: str, *issuers: JwtIssuer, now_ms: int = NOW_MS) -> str:
    with pytest.raises(Unauthorized) as refused:
        check(text, *issuers, now_ms=now_ms)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("algorithm", ISSUERS)
def test_a_token_of_a_configured_issuer_is_believed(algorithm: str) -> None:
    text = token(header={"alg": algorithm, "kid": "1"}, sign=SIGNERS[algorithm])
    assert check(text, ISSUERS[algorithm]) == Claim("orders", frozenset({SEND}), (NOW_S + 3600) * 1000)


@pytest.mark.parametrize("algorithm", ISSUERS)
def test_every_changed_byte_is_noticed(algorithm: str) -> None:
    header, said, signature = token(header={"alg": algorithm}, sign=SIGNERS[algorithm]).split(".")
    richer = base64.urlsafe_b64encode(json.dumps(GOOD | {"rights": ["Manage"]}).encode()).rstrip(b"=").decode()
    other = ("A" if signature[0] != "A" else "B") + signature[1:]
    assert "does not fit" in refusal(f"{header}.{richer}.{signature}", ISSUERS[algorithm])
    assert "does not fit" in refusal(f"{header}.{said}.{other}", ISSUERS[algorithm])
    assert "does not fit" in refusal(f"{header}.{said}.AAAA", ISSUERS[algorithm])
    assert "does not fit" in refusal(f"{header}.{said}.{'A' * 86}", ISSUERS[algorithm])


def test_without_an_issuer_the_refusal_says_what_to_configure() -> None:
    with pytest.raises(Unauthorized, match="jwt_issuers"):
        check_jwt(token(), "orders", (), NOW_MS)


def test_an_issuer_that_changes_its_key_may_be_listed_with_both() -> None:
    old = JwtIssuer("https://issuer", "HS256", "x" * 40)
    assert check(token(), old, ISSUERS["RS256"], ISSUERS["HS256"]).rights == {SEND}
    assert "does not fit" in refusal(token(), old)


# --- known attacks ---


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, 1, ["HS256"], {"alg": "HS256"}])
def test_unsigned_tokens_do_not_exist(algorithm: object) -> None:
    unsigned = token(header={"alg": algorithm}, sign=lambda _: b"").rstrip(".") + "."
    for issuer in ISSUERS.values():
        assert refusal(unsigned, issuer)
        assert "issuer's algorithm" in refusal(token(header={"alg": algorithm}), issuer)
    assert "issuer's algorithm" in refusal(token(header={}))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_public_key_is_no_secret_to_sign_with(algorithm: str) -> None:
    pem = ISSUERS[algorithm].key
    for secret in (pem, pem.strip(), pem.encode()):
        forged = token(header={"alg": "HS256"}, sign=secret_signer(secret))
        assert "issuer's algorithm" in refusal(forged, ISSUERS[algorithm])
        claimed = token(header={"alg": algorithm}, sign=secret_signer(secret))
        assert "does not fit" in refusal(claimed, ISSUERS[algorithm])
    with pytest.raises(OptionsError, match="RS256 or ES256"):
        JwtIssuer("https://issuer", "HS256", pem)


@pytest.mark.parametrize("algorithm", ["HS384", "HS512", "RS512", "PS256", "ES384"])
def test_the_issuers_algorithm_is_the_only_one(algorithm: str) -> None:
    assert "issuer's algorithm" in refusal(token(header={"alg": algorithm}))
    with pytest.raises(OptionsError, match="HS256, RS256, ES256"):
        JwtIssuer("https://issuer", algorithm, SECRET)


def test_a_signature_of_zeros_is_none() -> None:
    """Some verifiers have taken r = s = 0."""
    zeros = token(header={"alg": "ES256"}, sign=lambda _: bytes(64))
    assert "does not fit" in refusal(zeros, ISSUERS["ES256"])


def test_extensions_that_must_be_understood_are_refused() -> None:
    assert "crit" in refusal(token(header={"alg": "HS256", "crit": ["b64"], "b64": False}))


def test_a_token_with_its_own_key_is_checked_with_ours() -> None:
    own = ec.generate_private_key(ec.SECP256R1())
    header = {"alg": "ES256", "jwk": {"kty": "EC"}, "jku": "https://evil", "x5u": "https://evil", "kid": "../../null"}
    assert "does not fit" in refusal(token(header=header, sign=curve_signer(own)), ISSUERS["ES256"])


# --- what it says ---


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://other"}, "issuer that is not configured"),
        ({"iss": None}, "issuer that is not configured"),
        ({"iss": ["https://issuer"]}, "issuer that is not configured"),
        ({"aud": "https://other"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [1, {}]}, "audience"),
        ({"exp": NOW_S}, "expired"),
        ({"exp": None}, "'exp' is not a time"),
        ({"exp": True}, "'exp' is not a time"),
        ({"exp": "9999999999"}, "'exp' is not a time"),
        ({"exp": float("nan")}, "'exp' is not a time"),
        ({"exp": float("inf")}, "'exp' is not a time"),
        ({"exp": 10**400}, "'exp' is not a time"),
        ({"exp": -1e300}, "'exp' is not a time"),
        ({"nbf": NOW_S + 3600}, "not valid yet"),
        ({"nbf": "soon"}, "'nbf' is not a time"),
        ({"rights": []}, "gives no right"),
        ({"rights": ["Read"]}, "may be Send, Listen and Manage"),
        ({"rights": "Send"}, "'rights' is not a list"),
        ({"rights": {"Send": 1}}, "'rights' is not a list"),
        ({"rights": [1]}, "'rights' is not a list"),
        ({"rights": None}, "'rights' is not a list"),
        ({"roles": "Azure Service Bus Data Owner"}, "'roles' is not a list"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(changes: dict[str, Any], why: str) -> None:
    assert why in refusal(token(GOOD | changes))


@pytest.mark.parametrize("claim", ["iss", "aud", "exp", "rights"])
def test_what_is_missing_is_refused(claim: str) -> None:
    assert refusal(token({name: value for name, value in GOOD.items() if name != claim}))


@pytest.mark.parametrize(
    ("said", "rights"),
    [
        ({"rights": ["Send"]}, {SEND}),
        ({"rights": ["send", "LISTEN"]}, {SEND, LISTEN}),
        ({"rights": ["Manage"]}, {SEND, LISTEN, MANAGE}),
        ({"roles": ["Azure Service Bus Data Owner"]}, {SEND, LISTEN, MANAGE}),
        ({"roles": ["Azure Service Bus Data Sender", "Reader"]}, {SEND}),
        ({"roles": ["azure service bus data receiver"]}, {LISTEN}),
        ({"roles": ["Azure Service Bus Data Sender"], "rights": ["Listen"]}, {SEND, LISTEN}),
    ],
)
def test_rights_come_by_name_or_by_role(said: dict[str, Any], rights: set[Right]) -> None:
    base = {name: value for name, value in GOOD.items() if name != "rights"}
    assert check(token(base | said)).rights == rights


@pytest.mark.parametrize("aud", [SERVICE_AUDIENCE, SERVICE_AUDIENCE + "/", ["other", SERVICE_AUDIENCE]])
def test_the_audience_may_be_one_of_several(aud: object) -> None:
    assert check(token(GOOD | {"aud": aud})).rights == {SEND}


def test_a_token_is_good_from_its_begin_to_its_end() -> None:
    text = token(GOOD | {"nbf": NOW_S + 1000.5, "exp": NOW_S + 2000.5})
    begin_ms, end_ms = NOW_MS + 1_000_500, NOW_MS + 2_000_500
    assert refusal(text, now_ms=begin_ms - CLOCK_SKEW_MS - 1) == "the token is not valid yet"
    assert check(text, now_ms=begin_ms - CLOCK_SKEW_MS).until_ms == end_ms
    assert check(text, now_ms=end_ms - 1).until_ms == end_ms
    assert refusal(text, now_ms=end_ms) == "the token has expired"


# --- malformed ---


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


HEADER, SAID, SIGNATURE = token().split(".")


@pytest.mark.parametrize(
    "text",
    [
        "", ".", "..", "...", "a.b", "a.b.c.d", "a.b.c",
        f"{HEADER}.{SAID}", f"{HEADER}.{SAID}.", f".{SAID}.{SIGNATURE}", f"{HEADER}..{SIGNATURE}",
        f"{HEADER}.{SAID}.{SIGNATURE}.", f"{HEADER}=.{SAID}.{SIGNATURE}", f"{HEADER}.{SAID}.{SIGNATURE}=",
        f"{HEADER} .{SAID}.{SIGNATURE}", f"{HEADER}\n.{SAID}.{SIGNATURE}", f"{HEADER}.{SAID}.+/+/",
        f"{part(b'{')}.{SAID}.{SIGNATURE}", f"{part(bytes(range(256)))}.{SAID}.{SIGNATURE}",
        f"{part(b'[]')}.{SAID}.{SIGNATURE}", f"{part(b'null')}.{SAID}.{SIGNATURE}",
        f"{HEADER}.{part(b'1')}.{SIGNATURE}",
        f"{HEADER}.{part(b'[' * 3000)}.{SIGNATURE}", f"{HEADER}.{part(b'9' * 5000)}.{SIGNATURE}",
        f"{HEADER}.{part(b'{' + b'x' * 10)}.{SIGNATURE}", f"A.{SAID}.{SIGNATURE}", f"{HEADER}.{SAID}.A",
    ],
)  # fmt: skip
def test_what_is_no_token_is_refused(text: str) -> None:
    assert refusal(text)


# --- issuers ---


def pem_of_private(key: rsa.RSAPrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    ("algorithm", "key", "why"),
    [
        ("HS256", "short", "at least 32 bytes"),
        ("RS256", "nonsense", "public key as PEM"),
        ("RS256", "", "public key as PEM"),
        ("RS256", pem_of_private(RSA_KEY), "public key as PEM"),
        ("RS256", public_pem(CURVE_KEY), "RSA public key"),
        ("RS256", public_pem(rsa.generate_private_key(public_exponent=65537, key_size=1024)), "2048 bits"),
        ("ES256", public_pem(RSA_KEY), "P-256"),
        ("ES256", public_pem(ec.generate_private_key(ec.SECP384R1())), "P-256"),
        (
            "ES256",
            ed25519.Ed25519PrivateKey.generate()
            .public_key()
            .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            .decode(),
            "P-256",
        ),
    ],
)
def test_an_issuers_key_has_to_fit_its_algorithm(algorithm: str, key: str, why: str) -> None:
    with pytest.raises(OptionsError, match=why):
        JwtIssuer("https://issuer", algorithm, key)


def test_an_issuer_needs_a_name_and_an_audience() -> None:
    with pytest.raises(OptionsError, match="name"):
        JwtIssuer("", "HS256", SECRET)
    with pytest.raises(OptionsError, match="audience"):
        JwtIssuer("me", "HS256", SECRET, "")


def test_an_issuers_key_is_not_shown() -> None:
    assert SECRET not in repr(ISSUERS["HS256"])
