"""An option name means one thing in every command; old names still work."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from twinbus.cli.arguments.option_groups import DROPPED, OLD_NAMES, accept_old_names
from twinbus.cli.main import make_app, run

OF_THE_CLIENT = {"--entities", "--ttl"}
"""Of `proxy`: every option of the paired client has the name that it has there."""
WORDS_MIN = 2
"""What the help of an option begins with, wherever it is."""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


@cache
def meanings() -> dict[str, dict[str, Any]]:
    """By option name, the option of each command that has it."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for path, command in commands(get_command(make_app())):
        for param in command.params:
            for name in param.opts if not getattr(param, "hidden", False) else ():
                if name.startswith("-") and not (path == "proxy" and name in OF_THE_CLIENT):
                    found[name][path] = param
    return {name: params for name, params in found.items() if len(params) > 1}


def beginning(texts: list[str]) -> int:
    """With how many words all of them begin."""
    split = [re.findall(r"[\w'-]+", text.partition("[default")[0].lower()) for text in texts]
    alike = [len(set(words)) == 1 for words in zip(*split, strict=False)]
    return alike.index(False) if False in alike else max(map(len, split))


@pytest.mark.parametrize("name", sorted(meanings()))
def test_a_name_has_one_type_and_one_help_beginning_everywhere(name: str) -> None:
    params = meanings()[name]
    assert len({param.is_flag for param in params.values()}) == 1
    values = {path: re.split(r"\W", param.metavar or "")[0] for path, param in params.items()}
    assert len(set(values.values())) == 1, values
    texts = {path: str(param.help) for path, param in params.items()}
    assert beginning(list(texts.values())) >= WORDS_MIN, texts


@pytest.mark.parametrize("path", OLD_NAMES)
def test_an_old_name_works_and_is_shown_nowhere(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path.split(), "--help"]) == 0
    shown = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    for old, new in OLD_NAMES[path].items():
        assert old not in shown
        assert new in shown
        command = dict(commands(get_command(make_app())))[path]
        accept_old_names(command, tuple(path.split()))
        option = next(param for param in command.params if new in param.opts)
        arguments = ["x"] * sum(param.param_type_name == "argument" and param.required for param in command.params)
        value = "7" if option.metavar == "N" else "10m"
        context = command.make_context(path, [*arguments, old, value], resilient_parsing=False)
        assert str(context.params[option.name]) == value


def test_an_option_of_the_wrong_command_is_still_refused() -> None:
    assert CliRunner().invoke(make_app(), ["ledger", "stats", "x", "--count", "1"]).exit_code != 0


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in DROPPED.items() for name in names])
def test_a_dropped_option_works_is_shown_nowhere_and_prints_a_hint(
    path: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path.split(), "--help"]) == 0
    assert name not in capsys.readouterr().out
    command = dict(commands(get_command(make_app())))[path]
    option = next(param for param in command.params if name in param.opts)
    accept_old_names(command, tuple(path.split()))
    context = command.make_context(path, [name] if option.is_flag else [name, "5s"], resilient_parsing=False)
    assert context.params[option.name] == (True if option.is_flag else "5s")
    assert capsys.readouterr().err == f"twinbus: {name} goes away in the next version: {DROPPED[path][name]}\n"


def test_options_that_belong_together_are_shown_under_one_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", "--help"]) == 0
    text = capsys.readouterr().out.partition("\nOptions:")[2]
    titles = ("\nFault:", "--by-status", "\nNamespaces:", "--primary STRING", "\nLimits:", "--max-lost", "\nCanaries:")
    places = [text.index(each) for each in titles]
    assert places == sorted(places)
