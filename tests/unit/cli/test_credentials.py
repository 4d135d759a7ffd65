"""Keys and issuers on the command line: what is wrong is said in one line, with what would be right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from token_makers import public_pem

from twinbus.broker.auth.access_rules import AccessRule
from twinbus.broker.data_directory import RULE_KEYS_FILE, rule_keys
from twinbus.broker.operations import Right
from twinbus.cli.arguments.credentials import parse_rules, read_issuer
from twinbus.cli.main import run
from twinbus.errors import OptionsError, StoreError
from twinbus.options import NamespaceOptions

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--rule", "--rule NAME:RIGHTS"),
        ("--rule reader", "NAME:RIGHTS or NAME:RIGHTS:KEY"),
        ("--rule reader:Read", "Send, Listen and Manage"),
        ("--rule reader:Listen,Send", "Send, Listen and Manage"),
        ("--rule reader:Listen:a;b", "semicolons"),
        ("--rule a=b:Listen", "equals signs"),
        ("--rule reader:Listen --rule READER:Send", "given twice: reader"),
        ("--rule RootManageSharedAccessKey:Listen", "given twice"),
        (" ".join(f"--rule r{number}:Send" for number in range(12)), "at most 12"),
        ("--jwt-issuer", "--jwt-issuer FILE"),
        ("--jwt-issuer nowhere.json", "nowhere.json cannot be read"),
    ],
)
def test_a_wrong_option_is_one_line(
    arguments: str, expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "--memory", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert expected in err


def test_rules_are_read() -> None:
    assert parse_rules(["a:Send", "b:send+listen:key"]) == (
        AccessRule("a", frozenset({Right.SEND})),
        AccessRule("b", frozenset({Right.SEND, Right.LISTEN}), "key"),
    )


def test_an_issuer_is_read_from_a_file_with_its_key_beside_it(tmp_path: Path) -> None:
    pem = public_pem(ec.generate_private_key(ec.SECP256R1()))
    (tmp_path / "issuer.pem").write_text(pem)
    file = tmp_path / "issuer.json"
    file.write_text(json.dumps({"issuer": "me", "algorithm": "ES256", "key_file": "issuer.pem", "audience": "us"}))
    issuer = read_issuer(file)
    assert (issuer.issuer, issuer.algorithm, issuer.key, issuer.audience) == ("me", "ES256", pem, "us")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "one JSON object"),
        ('{"issuer": 1}', "one JSON object"),
        ('{"issuer": "me", "algorithm": "HS256"}', "either key or key_file"),
        ('{"issuer": "me", "algorithm": "HS256", "key": "k", "key_file": "f"}', "either key or key_file"),
        ('{"issuer": "me", "algorithm": "HS256", "key": "k", "kye": "f"}', "either key or key_file"),
        ('{"issuer": "me", "key": "k"}', "either key or key_file"),
        ('{"issuer": "me", "algorithm": "HS256", "key": "short"}', "at least 32 bytes"),
        ('{"issuer": "me", "algorithm": "none", "key": "short"}', "HS256, RS256, ES256"),
        ('{"issuer": "me", "algorithm": "RS256", "key_file": "missing.pem"}', "missing.pem cannot be read"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_file_that_describes_no_issuer_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "issuer.json"
    file.write_text(text)
    with pytest.raises(OptionsError, match=why):
        read_issuer(file)


def test_too_many_issuers_are_refused() -> None:
    from twinbus.broker.auth.jwt import JwtIssuer

    with pytest.raises(OptionsError, match="at most 12 token issuers"):
        NamespaceOptions(jwt_issuers=(JwtIssuer("me", "HS256", SECRET),) * 13)


# --- keys that are kept ---


def test_a_rules_key_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    first = rule_keys(tmp_path, ["reader", "a/b"])
    assert len(set(first)) == 2
    assert rule_keys(tmp_path, ["a/b"]) == first[1:]
    both = rule_keys(tmp_path, ["new", "reader"])
    assert both[1] == first[0], "a rule that was left out for a while has its old key"
    assert (tmp_path / RULE_KEYS_FILE).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.iterdir()] == [RULE_KEYS_FILE]


def test_without_rules_there_is_no_file(tmp_path: Path) -> None:
    assert rule_keys(tmp_path, []) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '"x"', "\xff"])
def test_a_damaged_key_file_is_reported_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / RULE_KEYS_FILE
    file.write_text(text, encoding="latin-1")
    with pytest.raises(StoreError, match=RULE_KEYS_FILE):
        rule_keys(tmp_path, ["reader"])
    assert file.read_text(encoding="latin-1") == text
