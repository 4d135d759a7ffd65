"""Shared access signatures: tokens that are made with the key of a rule.

    SharedAccessSignature sr=<resource>&sig=<signature>&se=<end, in seconds since 1970>&skn=<rule>

in any order. The signature covers resource and end as they stand in the token, still encoded: producers encode them
differently (upper-case or lower-case escapes, a name that is encoded twice), and only the bytes they signed tell.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

from twinbus.broker.auth.access_rules import KEYS_OF_A_RULE, AccessRule, RuleBook, any_key_fits
from twinbus.broker.auth.claims import Claim, is_within, resource_path
from twinbus.errors import Unauthorized

SAS_SCHEME = "SharedAccessSignature"
_FIELDS = ("sr", "sig", "se", "skn")
_END_DIGITS_MAX = 12
RULES_OF_A_NAME = 2
"""One of the namespace, and one of the entity."""


class Signature(NamedTuple):
    """The fields of a token as they stand in it."""

    sr: str
    sig: str
    se: str
    skn: str


def is_signature(token: str) -> bool:
    return token[: len(SAS_SCHEME) + 1].lower() == SAS_SCHEME.lower() + " "


def check_signature(token: str, path: str, book: RuleBook, now_ms: int) -> Claim:
    """The claim that a token proves for a plain path; raises `Unauthorized` if it proves none.

    The claim is for that path only, even if the token was made for more.
    """
    fields = _read(token)
    rule, is_for_one_entity = _signer(fields, path, book)
    until_ms = _end_ms(fields.se)
    if until_ms <= now_ms:
        raise Unauthorized("the token has expired")
    if not is_within(path, resource_path(unquote_plus(fields.sr))):
        raise Unauthorized(f"the token was made for another resource than {path or '/'!r}")
    return Claim(path, rule.grants, until_ms, is_for_one_entity)


def _read(token: str) -> Signature:
    pairs = [part.partition("=")[::2] for part in token[len(SAS_SCHEME) + 1 :].strip().split("&")]
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Unauthorized("the token has a field twice")
    missing = [name for name in _FIELDS if not fields.get(name)]
    if missing:
        raise Unauthorized(f"the token lacks {', '.join(missing)}")
    return Signature(*(fields[name] for name in _FIELDS))


def _signer(fields: Signature, path: str, book: RuleBook) -> tuple[AccessRule, bool]:
    """The rule whose key made the signature, and whether the entity has it; one of the namespace gives more rights."""
    names = _possible_names(fields.skn)
    rules = [(rule, False) for rule in book.rules if rule.name in names]
    rules += [(rule, True) for rule in book.entity_rules(path) if rule.name in names]
    signed, given = f"{fields.sr}\n{fields.se}".encode(), _signature_bytes(fields.sig)

    def digest(key: str) -> bytes:
        return hmac.new(key.encode(), signed, hashlib.sha256).digest()

    found = _find_signer(rules, digest, given)
    if found is None:
        raise Unauthorized("the token's signature does not fit: the name of its rule or its key is wrong")
    return found


def _possible_names(skn: str) -> set[str]:
    """As it stands (JavaScript over HTTP), encoded once, or twice (Python)."""
    once = unquote_plus(skn)
    return {skn, unquote(skn), once, unquote_plus(once)}


def _signature_bytes(sig: str) -> bytes:
    try:
        return base64.b64decode(unquote(sig), validate=True)
    except (binascii.Error, ValueError):
        raise Unauthorized("the token's signature is not base64") from None


def _find_signer(
    rules: list[tuple[AccessRule, bool]], digest: Callable[[str], bytes], given: bytes
) -> tuple[AccessRule, bool] | None:
    """The first rule whose key made the signature. A wrong name takes as long as a wrong key."""
    padded: list[tuple[AccessRule | None, bool]] = [*rules, *[(None, False)] * (RULES_OF_A_NAME - len(rules))]
    fitting: list[tuple[AccessRule, bool]] = []
    for rule, is_for_one_entity in padded:
        fits = any_key_fits(() if rule is None else rule.keys, digest, given, KEYS_OF_A_RULE)
        if fits and rule is not None:
            fitting.append((rule, is_for_one_entity))
    return fitting[0] if fitting else None


def _end_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _END_DIGITS_MAX):
        raise Unauthorized("the token's end 'se' is not a time in whole seconds since 1970")
    return int(text) * 1000
