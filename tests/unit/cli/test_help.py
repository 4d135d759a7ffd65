"""Every command teaches: an example that could be typed, its exit codes, a word about every option."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer

from pages.command_pages import every_command
from twinbus.cli.command_table import COMMANDS as TABLE
from twinbus.cli.main import make_app, run

ROOT = typer.main.get_command(make_app())
COMMANDS = {" ".join(path): command for path, command in every_command(ROOT, ("twinbus",))}


def shown(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run([*name.split()[1:], "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_and_exit_codes_and_fits_a_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(name, capsys)
    assert "Examples" in text
    assert "Exit codes:" in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_speak_json(name: str) -> None:
    assert "--json" in options_of(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_and_what_it_takes(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert parameter.help, parameter.name
        if parameter.param_type_name == "option" and not parameter.is_flag:
            assert parameter.metavar, parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_use_what_there_is(name: str) -> None:
    lines = [line.partition("twinbus ")[2] for line in (COMMANDS[name].help or "").splitlines() if "  twinbus " in line]
    lines += [
        line.partition("twinbus ")[2] for line in (COMMANDS[name].help or "").splitlines() if "| twinbus " in line
    ]
    assert lines
    for line in lines:
        words = shlex.split(line.partition(" | ")[0].partition("   ")[0])
        command: Any = ROOT
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        assert [word for word in words if word.startswith("--") and word not in options_of(command)] == []


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def completed(words: str, tmp_path: Path) -> list[str]:
    """What bash would be offered at the end of these words."""
    script = tmp_path / "completion.sh"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shown = subprocess.run(
        ["bash", "-c", "twinbus --show-completion; true"], env=environment, capture_output=True, text=True
    )
    script.write_text(shown.stdout)
    ask = f". {script}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _twinbus_completion twinbus; "
    done = subprocess.run(
        ["bash", "-c", ask + 'printf "%s\\n" "${COMPREPLY[@]}"'], env=environment, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    assert completed("twinbus sy", tmp_path) == ["syphon"]
    assert completed("twinbus send orders --sec", tmp_path) == ["--secondary"]
    assert completed("twinbus syphon quarantine ''", tmp_path) == ["list", "show", "redrive", "discard"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("pair --role s", ["sender", "syphon"]),
        ("pair --emit ''", ["bicep", "terraform", "cli"]),
        ("status --credential m", ["managed-identity"]),
        ("status --check s", ["sending"]),
        ("fault add no", ["no-send", "no-receive", "no-manage"]),
        ("fault list --namespace c", ["contoso"]),
        ("drill --fault u", ["unreachable", "unanswered"]),
        ("serve --limit busy_op", ["busy_operations_per_second="]),
        ("syphon --ttl-mode re", ["remaining", "restart"]),
        ("syphon quarantine list --reason TwinbusE", ["TwinbusExpired"]),
        ("ledger tail x --kind failed", ["failed_over"]),
    ],
)
def test_values_complete(
    words: str,
    offered: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / ".twinbus" / "contoso").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("_TWINBUS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"twinbus {words}".replace("''", ""))
    monkeypatch.setenv("COMP_CWORD", str(len(f"twinbus {words}".split()) - 1))
    with pytest.raises(SystemExit):  # as bash is told, by the program alone
        run([])
    assert capsys.readouterr().out.split() == offered


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_completes_at_the_first_tab_after_it_was_installed(tmp_path: Path) -> None:
    (tmp_path / ".zshrc").touch()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    home = os.environ | {"PATH": path, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "dumb", "PS1": "% "}
    subprocess.run(["zsh", "-c", "twinbus --install-completion zsh; true"], env=home, check=True, capture_output=True)
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe("zsh", ["zsh", "-i"], home)
    try:
        os.write(terminal, b"twinbus sy\t")
        shown, deadline = b"", time.monotonic() + 60
        while b"syphon" not in shown:
            assert time.monotonic() < deadline, shown
            shown += os.read(terminal, 65_536) if select.select([terminal], [], [], 0.1)[0] else b""
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


@pytest.mark.parametrize("name", TABLE)
def test_a_command_is_made_without_the_others_and_called_as_the_table_says(name: str) -> None:
    group: Any = typer.main.get_command(make_app(name))
    assert list(group.commands) == [name]


def test_a_run_imports_only_the_command_that_it_needs() -> None:
    code = "import sys; from twinbus.cli.main import run; run(['cost', 'forecast']); print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "twinbus.cli.commands.cost" in names
    assert {"twinbus.cli.commands.serve", "twinbus.cli.commands.send", "twinbus.cli.status.status"}.isdisjoint(names)
