"""A key that is typed in the wrong place is never repeated: not in errors, not in results, not in tracebacks."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from twinbus.cli.commands import serve
from twinbus.cli.main import make_app, run

KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I="
STRING = f"Endpoint=sb://127.0.0.1:9;SharedAccessKeyName=k;SharedAccessKey={KEY};UseDevelopmentEmulator=true"
TOKEN = f"SharedAccessSignature sr=sb%3A%2F%2Fa&sig={KEY[:-1]}%3D&se=1&skn=k"
SECRET = KEY[:20]
"""A part of it is too much already."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield path, command
    for name, each in below.items():
        yield from commands(each, (*path, name))


def invocations() -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command with the secret in one of its parameters, the required ones filled with a word."""
    for path, command in commands(typer.main.get_command(make_app())):
        for wrong in (*[param for param in command.params if not getattr(param, "is_flag", False)], None):
            words = list(path)
            for param in command.params:
                if param is not wrong and not param.required:
                    continue
                value = "SECRET" if param is wrong else "word"
                words += [value] if param.param_type_name == "argument" else [param.opts[0], value]
            yield tuple(words) if wrong is not None else (*words, "SECRET"), " ".join(path)
        yield (*path, "--SECRET"), " ".join(path)
        yield (*path, "--bogus=SECRET"), " ".join(path)
        yield (*path, "--json=SECRET"), " ".join(path)


INVOCATIONS = sorted(dict.fromkeys(words for words, _ in invocations()))


@pytest.fixture(autouse=True)
def nothing_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands that go on for long end at once; nothing is found in the environment."""

    async def end(*_: object, **__: object) -> None:
        return None

    def refuse(*_: object, **__: object) -> None:
        raise typer.Abort

    monkeypatch.setattr(serve, "serve_until_stopped", end)
    monkeypatch.setattr("twinbus.demo.run.run_demo", refuse)
    monkeypatch.chdir(tmp_path)
    for name in ("TWINBUS_PRIMARY", "TWINBUS_SECONDARY", "TWINBUS_CREDENTIAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TWINBUS_TRACEBACK", "1")


@pytest.mark.parametrize("words", INVOCATIONS, ids=" ".join)
def test_a_key_in_the_wrong_place_is_not_repeated(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    for secret in (STRING, TOKEN, KEY) if words[-1] in ("SECRET", "--SECRET") and len(words) < 3 else (STRING,):
        run([word.replace("SECRET", secret) for word in words])
        said = capfd.readouterr()
        assert SECRET not in said.out + said.err


@pytest.mark.parametrize(
    "words",
    ["serve --rule app:Snd:not-for-your-eyes", "serve --key=not-for-your-eyes;", "serve --key 'not-for-your-eyes '"],
)
def test_a_key_of_any_form_is_not_repeated_either(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(shlex.split(words)) == 2
    assert "not-for" not in capfd.readouterr().err
