"""The options of `twinbus serve` about keys: access rules, and issuers of web tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.errors import OptionsError

if TYPE_CHECKING:
    from twinbus.broker.auth.access_rules import AccessRule
    from twinbus.broker.auth.jwt import JwtIssuer

FIELDS = ("issuer", "algorithm", "key", "key_file", "audience")


def parse_rules(texts: Iterable[str]) -> tuple[AccessRule, ...]:
    """The rules in `--rule` options; raises `OptionsError` if one is none."""
    from twinbus.broker.auth.access_rules import parse_rule

    try:
        return tuple(parse_rule(text) for text in texts)
    except OptionsError as error:
        raise OptionsError(f"--rule: {error}") from None


def read_issuer(file: Path) -> JwtIssuer:
    """The issuer that a JSON file describes; `key_file` is looked for beside it. Raises `OptionsError`."""
    from twinbus.broker.auth.jwt import JwtIssuer

    try:
        fields = _read_fields(file)
        key_file = fields.pop("key_file", None)
        if key_file is not None:
            fields["key"] = (file.parent / key_file).read_text(encoding="utf-8")
        return JwtIssuer(**fields)
    except OSError as error:
        raise OptionsError(f"--jwt-issuer: {error.filename} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise OptionsError(f"--jwt-issuer {file}: {error}") from None


def _read_fields(file: Path) -> dict[str, str]:
    fields = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise OptionsError(f"the file must hold one JSON object with texts under {', '.join(FIELDS)}")
    if (
        set(fields) - set(FIELDS)
        or not {"issuer", "algorithm"} <= set(fields)
        or ("key" in fields) == ("key_file" in fields)
    ):
        raise OptionsError("the file has issuer, algorithm, either key or key_file, and audience if it is another one")
    return fields
