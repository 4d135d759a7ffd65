"""Authorization: keys, signed tokens and HTTP headers become claims.

Refusals are `Unauthorized` with one line that says why. They never say what would have been right, and neither their
text nor their time tells an unknown rule from a wrong key.
"""

from __future__ import annotations

from collections.abc import Sequence

from twinbus.broker.auth.access_rules import RuleBook, has_key
from twinbus.broker.auth.claims import FOR_EVER_MS, Claim, missing_right, plain_path, resource_path
from twinbus.broker.auth.jwt import JwtIssuer, check_jwt
from twinbus.broker.auth.sas import check_signature, is_signature
from twinbus.broker.operations import Right
from twinbus.errors import Unauthorized

TOKEN_LENGTH_MAX = 8 * 1024
RESOURCE_LENGTH_MAX = 1024
_BEARER = "bearer "


class Authority:
    """Checks keys and tokens against the rules and the token issuers of one namespace."""

    def __init__(self, book: RuleBook, jwt_issuers: Sequence[JwtIssuer] = ()) -> None:
        self.book = book
        self._jwt_issuers = tuple(jwt_issuers)

    # --- name and key (SASL PLAIN) ---

    def knows(self, rule_name: str, key: str) -> bool:
        """Whether a rule of the namespace has this key. Rules of entities do not count: a connection is for all."""
        rule = self.book.named(rule_name)
        return has_key(() if rule is None else rule.keys, key)

    def claim_of(self, rule_name: str) -> Claim | None:
        """The rights of a peer that logged in with a rule's key."""
        rule = self.book.named(rule_name)
        return None if rule is None else Claim("", rule.grants, FOR_EVER_MS)

    # --- tokens ---

    def check_token(self, token: str, audience: str, now_ms: int) -> Claim:
        """The claim a token proves for an audience such as `sb://host/orders`; its text shows its kind."""
        if len(audience) > RESOURCE_LENGTH_MAX:
            raise Unauthorized(f"an audience has at most {RESOURCE_LENGTH_MAX} characters")
        return self._check(token, resource_path(audience), now_ms)

    def authorize_http(self, header: str | None, path: str, right: Right, now_ms: int) -> Claim:
        """The claim in an Authorization header, if it gives the right to a path (decoded, without its query)."""
        if len(path) > RESOURCE_LENGTH_MAX:
            raise Unauthorized(f"a path has at most {RESOURCE_LENGTH_MAX} characters")
        claim = self._check(_token_in(header), plain_path(path), now_ms)
        if not claim.allows(path, right, now_ms):
            raise Unauthorized(missing_right(path, right))
        return claim

    def _check(self, token: str, path: str, now_ms: int) -> Claim:
        if len(token) > TOKEN_LENGTH_MAX:
            raise Unauthorized(f"a token has at most {TOKEN_LENGTH_MAX} characters")
        if not token.isascii():
            raise Unauthorized("the token has characters that no token has")
        if is_signature(token):
            return check_signature(token, path, self.book, now_ms)
        return check_jwt(token, path, self._jwt_issuers, now_ms)


def _token_in(header: str | None) -> str:
    if not header:
        raise Unauthorized("the request has no Authorization header")
    token = header.strip()
    return token[len(_BEARER) :].strip() if token[: len(_BEARER)].lower() == _BEARER else token
