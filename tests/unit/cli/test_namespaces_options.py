"""Which namespaces a command is about: options, environment, file, in this order; errors are one line without keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinbus.cli.arguments.namespaces import choose, config_places, one
from twinbus.cli.arguments.option_groups import PairArguments
from twinbus.cli.main import run
from twinbus.errors import OptionsError

SECRET = "c2VjcmV0LWtleQ=="


def string(name: str) -> str:
    return f"Endpoint=sb://{name}.servicebus.windows.net;SharedAccessKeyName=root;SharedAccessKey={SECRET}"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PRIMARY", "SECONDARY", "CREDENTIAL"):
        monkeypatch.delenv(f"TWINBUS_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))


def write(file: Path, primary: str = "file1", secondary: str = "file2") -> Path:
    file.write_text(
        f'[primary]\nconnection_string = "{string(primary)}"\n[secondary]\nconnection_string = "{string(secondary)}"\n'
    )
    return file


def test_an_option_wins_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write(Path("twinbus.toml"))
    assert [one.name for one in PairArguments().both()] == ["file1", "file2"]
    monkeypatch.setenv("TWINBUS_PRIMARY", string("env1"))
    assert [one.name for one in PairArguments().both()] == ["env1", "file2"]
    assert [one.name for one in PairArguments(primary=string("option1"), secondary=string("option2")).both()] == [
        "option1",
        "option2",
    ]


def test_a_file_in_the_current_folder_wins_over_the_one_of_the_user(tmp_path: Path) -> None:
    own = tmp_path / "own" / "twinbus"
    own.mkdir(parents=True)
    write(own / "twinbus.toml", "own1", "own2")
    assert [each.name for each in PairArguments().both()] == ["own1", "own2"]
    write(Path("twinbus.toml"))
    assert [each.name for each in PairArguments().both()] == ["file1", "file2"]


def test_the_file_of_the_user_is_below_his_home_where_nobody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config_places()[1] == tmp_path / ".config" / "twinbus" / "twinbus.toml"


def test_a_string_may_stand_in_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").write_text(string("a1") + "\n")
    (tmp_path / "there").write_text(string("a2"))
    monkeypatch.setenv("TWINBUS_SECONDARY", f"@{tmp_path / 'there'}")
    assert [each.name for each in PairArguments(primary="@here").both()] == ["a1", "a2"]


@pytest.mark.parametrize("text", [b"", SECRET.encode() + b"\nmore", b"\xff\xfe" + SECRET.encode()])
def test_a_file_without_a_string_is_reported_without_what_is_in_it(text: bytes) -> None:
    Path("here").write_bytes(text)
    with pytest.raises(OptionsError, match="--primary: here should hold one line") as refused:
        choose("primary", "@here", None)
    assert SECRET not in str(refused.value)
    with pytest.raises(OptionsError, match="--primary: nowhere cannot be read"):
        choose("primary", "@nowhere", None)


def test_a_file_of_another_name_can_be_given(tmp_path: Path) -> None:
    write(Path("twinbus.toml"))
    other = write(tmp_path / "other.toml", "a1", "a2")
    assert [one.name for one in PairArguments(config=other).both()] == ["a1", "a2"]


def test_a_file_may_contain_other_things_too() -> None:
    file = write(Path("twinbus.toml"))
    file.write_text(file.read_text() + "[ledger]\nfolder = 'x'\n")
    assert PairArguments().both()[0].name == "file1"


def test_nothing_said_is_nothing_chosen() -> None:
    assert choose("primary", None, None) is None
    with pytest.raises(OptionsError, match=r"--primary \(or TWINBUS_PRIMARY\) and --secondary"):
        PairArguments().both()
    with pytest.raises(OptionsError, match=r"give --secondary \(or"):
        PairArguments(primary=string("one")).both()


@pytest.mark.parametrize(
    "text",
    [
        "[primary",
        f'[primary]\nconnection_string = "{SECRET}',
        "[primary]\nconnection_string = 5",
        "[primary]\nkey = 'x'",
        "primary = 'x'",
        f"[primary]\nconnection_string = '{string('a')}'\nconection = 'b'",
        "\0",
    ],
)
def test_a_file_that_cannot_be_used_is_reported_without_what_is_in_it(text: str) -> None:
    Path("twinbus.toml").write_text(text)
    with pytest.raises(OptionsError, match=r"twinbus\.toml") as refused:
        PairArguments(secondary=string("b")).both()
    assert SECRET not in str(refused.value)


HOST = "contoso.servicebus.windows.net"


def test_a_host_name_needs_a_credential_from_the_option_the_environment_or_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(OptionsError, match="--primary: there is no key in it: name a credential"):
        one("primary", HOST, None)
    assert one("primary", HOST, None, "cli").address == f"{HOST}:5671"
    Path("twinbus.toml").write_text(f'[primary]\nhost = "{HOST}"\ncredential = "environment"\n')
    found = choose("primary", None, None)
    assert found is not None
    assert found[0::2] == (HOST, "environment")
    monkeypatch.setenv("TWINBUS_CREDENTIAL", "default")
    assert choose("primary", None, None, "cli") == found._replace(credential="cli")
    assert choose("primary", None, None) == found._replace(credential="default")


def test_one_side_may_have_a_key_and_the_other_an_identity() -> None:
    here, there = PairArguments(primary=string("a"), secondary=HOST, credential="cli").both()
    assert (type(here.credential).__name__, type(there.credential).__name__) == (
        "AzureNamedKeyCredential",
        "CachedCredential",
    )


def test_a_connection_string_without_a_key_says_how_to_get_there() -> None:
    found = one("primary", f"Endpoint=sb://{HOST}:5675;TwinbusNamespace=other", None, "cli")
    assert (found.address, found.name) == (f"{HOST}:5675", "other")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([HOST, "nobody"], "--credential: a credential is one of default, environment, workload[:CLIENT-ID]"),
        ([HOST, SECRET], "--credential: a credential is one of"),
        ([HOST, "cli:1234"], "--credential: cli takes no client id"),
        ([HOST, "managed-identity:"], "--credential: a client id has letters, digits and dashes"),
        ([string("a"), "cli"], "--credential takes the place of a key, and --primary has one"),
        ([SECRET.rstrip("="), "cli"], "--primary: part 1 of the connection string"),
        ([HOST, "workload"], "--primary: the credential workload cannot be used here: "),
    ],
)
def test_a_wrong_credential_is_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert run(["receive", "orders", "--primary", arguments[0], "--credential", arguments[1]]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert expected in err
    assert SECRET.rstrip("=") not in err


@pytest.mark.parametrize(
    "text", ["host = 'a.b'\nconnection_string = 'c'", "credential = 'cli'", "host = 'a.b'\ncredential = 'x'"]
)
def test_a_section_has_a_connection_string_or_a_host_with_a_credential(text: str) -> None:
    Path("twinbus.toml").write_text(f"[primary]\n{text}\n")
    with pytest.raises(OptionsError, match=r"twinbus\.toml"):
        choose("primary", None, None)


WRONG = [
    ([], "--primary (or TWINBUS_PRIMARY)"),
    (["--primary", string("a")], "--secondary (or TWINBUS_SECONDARY)"),
    (["--config", "nowhere.toml"], "nowhere.toml cannot be read"),
    (["--primary", SECRET, "--secondary", string("b")], "--primary: "),
    (["--primary", f"Endpoint=sb://a b SharedAccessKey={SECRET}", "--secondary", string("b")], "--primary: "),
    (["--primary", f"Endpoint=http://a;SharedAccessKey={SECRET}", "--secondary", string("b")], "--primary: "),
    (["--primary", string("a"), "--secondary", "Endpoint=sb://b"], "--secondary: "),
    (["--primary", string("a"), "--secondary", string("a")], "--primary and --secondary are the same namespace"),
    (["--primary", string("a"), "--secondary", string("b"), "--count", "0"], "--queues must be from 1 to 100"),
    (["--primary", string("a"), "--secondary", string("b"), "--count", "101"], "--queues must be from 1 to 100"),
    (["--primary", string("a"), "--secondary", string("b"), "--timeout", "5"], "--timeout: "),
    (["--primary", string("a"), "--secondary", string("b"), "--timeout", "1ms"], "--timeout must be from 100ms"),
]


@pytest.mark.parametrize("command", ["pair", "status"])
@pytest.mark.parametrize(("arguments", "expected"), WRONG)
def test_wrong_arguments_are_one_line_without_keys(
    command: str, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert expected in err
    assert SECRET not in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--emit", "bicep"], "--primary-name NAME"),
        (["--emit", "arm", "--primary-name", "contoso"], "bicep, terraform, cli"),
        (["--emit", "cli", "--primary-name", "a'; rm -rf"], "letters, digits and hyphens"),
        (["--emit", "cli", "--primary-name", "contoso", "--secondary-name", "$(x)"], "letters, digits and hyphens"),
        (["--emit", "cli", "--primary-name", "contoso", "--secondary-name", "Contoso"], "both called contoso"),
        (["--emit", "cli", "--primary-name", "contoso", "--json"], "leave --json out"),
        (["--emit", "cli", "--primary-name", "contoso", "--count", "0"], "--queues"),
        (["--emit"], "--emit TOOL"),
    ],
)
def test_wrong_orders_are_one_line(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pair", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert expected in err
