"""The pages of docs/reference about commands, errors and faults, drawn from the code:
`python -m pages.command_pages docs/reference`.

A test fails when a page on disk is not what this module would write.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from pages.pairing_pages import is_fresh
from twinbus import errors
from twinbus.broker.faults.catalogue import KINDS, LENGTH, RESTART, RESTART_MS, FaultParameter, InvalidParameter
from twinbus.cli.exit_codes import MEANINGS
from twinbus.cli.main import make_app
from twinbus.units import short_duration

DONE_BY = "<!-- Made from the code by `make pages`; do not edit. -->"

COMMANDS_TEXT = """
What `twinbus COMMAND --help` says, on one page. Results go to stdout, notes and errors to stderr. Every command takes
[`--json`](#json). What takes longer than two seconds shows how far it is, on a terminal; in a pipe nothing is drawn.

## Which namespaces

Connection strings are looked for in this order, each side on its own; the first that is found counts:

1. `--primary` and `--secondary`;
2. the environment variables `TWINBUS_PRIMARY` and `TWINBUS_SECONDARY`;
3. the file that `--config` names, under `[primary]` and `[secondary]`;
4. `twinbus.toml` in the current folder;
5. `twinbus.toml` in `~/.config/twinbus` (or in `twinbus` below `XDG_CONFIG_HOME`).

In 1 and 2, `@FILE` means what stands in that file. On a command line others on the machine can see a key; in files and
in the environment they cannot. Keys are never shown, also not in errors.

With `--credential` (or `TWINBUS_CREDENTIAL`, or `credential` in the file) there is no key: a side is named by its host,
e.g. `contoso.servicebus.windows.net`, in a file by `host` instead of `connection_string`; Entra ID says who you are.
See [use Entra ID instead of keys](../how-to/entra-id.md).

## JSON

Numbers have one form in every `--json`, and their names say which:

| what | name | value |
|---|---|---|
| a time | `at`, `..._at` | text, ISO 8601 in UTC with milliseconds: `2031-03-09T14:05:06.789Z` |
| a duration | `..._s` | a number of seconds |
| a size | `..._bytes` | a whole number of bytes |
| a rate | `per_s`, `..._per_s` | a number a second |
| money | below or ending in `usd` | a number of US dollars |
| a share | `share`, `availability`, `probability` | a number from 0 to 1 |
| a count | any other | a whole number |

What is unknown is null, never 0. Names that you have chosen (entities, sessions, properties) stay as they are. Commands
that go on for a while, and lists, print JSON lines: one object a line.

## Completion

`twinbus --install-completion` teaches the current shell (bash, zsh, fish, PowerShell) to complete commands and options;
`twinbus --show-completion` prints what it would install. Values complete too where there are few: roles, credentials,
faults, limits, kinds of events, and namespaces by their names. Nothing is asked over the network for that.

## Exit codes
"""
VARIABLES = {
    "TWINBUS_PRIMARY, TWINBUS_SECONDARY": "connection strings, or `@FILE`; with a credential, host names",
    "TWINBUS_CREDENTIAL": "the credential of Entra ID for sides without a key, as `--credential`",
    "SSL_CERT_FILE": "certificates to trust, where the connection string names none",
    "TWINBUS_KEY": "the access key of the namespaces that `twinbus serve` serves, or of a proxy",
    "TWINBUS_RUN": "where running proxies and spools are registered, for `twinbus status`; else in "
    "`XDG_RUNTIME_DIR`, or among temporary files",
    "TWINBUS_NO_CLASS_ARCHIVE": "if set, `twinbus pipeline report` makes no archive of Spark's classes, with "
    "which later reports start sooner",
    "TWINBUS_TRACEBACK": "if set, an unexpected error shows where it happened",
}
ERRORS_TEXT = """
Everything that twinbus raises on purpose is in `twinbus.errors` and has a text of one line. What the official SDK
raises is passed on as it is; `twinbus.receipt_of(error)` says what became of the messages of a paired send.

Errors with a *condition* are raised inside an embedded namespace; clients get the condition, and the official ones make
their own exceptions of it.
"""
FAULTS_TEXT = """
One vocabulary for `twinbus fault add`, for `namespace.faults.add(...)` in tests and for the control socket. A fault is
for the whole namespace, for `--entity` (repeated for a group), or for those whose name fits a `--pattern`; it lasts for
`--for`, or until it is cleared. An entity is a queue, a topic with its subscriptions, or one subscription
(`events/subscriptions/audit`); its dead-letter queue and management belong to it and cannot fail alone. `no-send`,
`unanswered` and `refuse --on sends` are refused for a subscription, because nobody sends to one: name its topic.
How to use them: [make a namespace fail](../how-to/faults.md).
"""
_DEFAULT = re.compile(r"\s*\[default: (?P<value>[^\]]*)\]")


# --- commands ---


def commands_page() -> str:
    codes = [(str(int(code)), text) for code, text in MEANINGS.items()]
    parts = [COMMANDS_TEXT.strip("\n"), "", *_table(("code", "meaning"), codes), ""]
    parts += ["A second signal ends a command on the spot, with 128 and the number of the signal.", ""]
    variables = [(f"`{name.replace(', ', '`, `')}`", text) for name, text in VARIABLES.items()]
    parts += ["## Environment", "", *_table(("variable", ""), variables)]
    for path, command in every_command(typer.main.get_command(make_app()), ("twinbus",)):
        parts += ["", *_command_lines(path, command)]
    return _page("Commands", *parts)


def every_command(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All that can be called, with the words that call it; a group that does nothing by itself is left out."""
    below = getattr(command, "commands", {})
    if not below or any(parameter.name != "version" for parameter in _parameters(command)):
        yield path, command
    for name, each in below.items():
        yield from every_command(each, (*path, name))


def _command_lines(path: Sequence[str], command: Any) -> Iterator[str]:
    description, _, block = inspect.cleandoc(command.help or "").partition("\b\n")
    yield from (f"## {' '.join(path)}", "", *_usage(path, command), "", description.strip(), "")
    panels: dict[str, list[Any]] = {"": []}
    for each in _parameters(command):
        panels.setdefault(getattr(each, "rich_help_panel", None) or "", []).append(each)
    for panel, parameters in panels.items():
        if panel:
            yield from ("", f"**{panel}**", "")
        yield from _table(("option", "default", ""), [_row(each) for each in parameters]) if parameters else ()
    if block:
        yield from ("", "```text", block.replace("\b\n", "").strip(), "```")
    yield from _special_codes(command)


def _usage(path: Sequence[str], command: Any) -> Sequence[str]:
    arguments = [each.metavar or each.name.upper() for each in command.params if each.param_type_name == "argument"]
    return [f"`{' '.join([*path, *arguments])} [OPTIONS]`"]


def _parameters(command: Any) -> list[Any]:
    hidden = {"help", "install_completion", "show_completion"}
    return [each for each in command.params if each.name not in hidden and not getattr(each, "hidden", False)]


def _row(parameter: Any) -> tuple[str, str, str]:
    text = str(parameter.help or "")
    stated = _DEFAULT.search(text)
    default = stated["value"] if stated else _default_of(parameter)
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`", "(required)" if parameter.required else "", text
    value = "" if parameter.is_flag else f" {parameter.metavar}"
    return f"`{', '.join(parameter.opts)}{value}`", default, _DEFAULT.sub("", text)


def _default_of(parameter: Any) -> str:
    if parameter.required:
        return "(required)"
    has_none = parameter.default is None or parameter.default is False  # 0 is one
    return "" if has_none else f"{parameter.default}"


def _special_codes(command: Any) -> Iterator[str]:
    """Of the exit codes only those that mean something special here."""
    usual = {f"{int(code):<4} {text}" for code, text in MEANINGS.items()}
    for line in (command.epilog or "").splitlines():
        found = re.fullmatch(r"\s*(\d+\s+.*)", line)
        if found and found[1] not in usual:
            code, text = found[1].split(maxsplit=1)
            yield from ("", f"Exit code {code}: {text}.")


# --- errors ---


def errors_page() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    rows = [(f"`{kind.__name__}`", _condition(kind), *when_and_what_to_do(kind)) for kind in every_error()]
    return _page(
        "Errors",
        ERRORS_TEXT.strip("\n"),
        "",
        "<!-- not output: a tree of classes -->",
        "```text",
        tree,
        "```",
        "",
        *_table(("error", "condition", "when", "what to do"), rows),
    )


def every_error() -> list[type[errors.TwinbusError]]:
    """In the order in which they are written."""
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.TwinbusError)]
    return [each for each in found if each.__module__ == errors.__name__]


def when_and_what_to_do(kind: type[errors.TwinbusError]) -> tuple[str, str]:
    """Both as one line, from its docstring."""
    when, _, advice = inspect.cleandoc(kind.__doc__ or "").partition("\n\nWhat to do: ")
    return " ".join(when.split()), " ".join(advice.split())


def _condition(kind: type[errors.TwinbusError]) -> str:
    condition = getattr(kind, "condition", None)
    return "" if condition is None or kind is errors.ConditionError else f"`{condition}`"


# --- faults ---


def faults_page() -> str:
    parts = [FAULTS_TEXT.strip("\n"), "", *_table(("fault", "what happens"), _meanings())]
    for name, kind in KINDS.items():
        rows = [_parameter_row(each, RESTART_MS if name == RESTART else None) for each in (LENGTH, *kind.parameters)]
        parts += ["", f"## {name}", "", f"{kind.meaning[0].upper()}{kind.meaning[1:]}.", ""]
        parts += [*_table(("option", "key", "default", "allowed"), rows), "", "```sh", *_example_of(name), "```"]
    return _page("Faults", *parts)


def _meanings() -> list[tuple[str, str]]:
    return [(f"[`{name}`](#{name})", kind.meaning) for name, kind in KINDS.items()]


def _parameter_row(parameter: FaultParameter, length_ms: int | None) -> tuple[str, str, str, str]:
    flag = "--for" if parameter is LENGTH else f"--{parameter.label}"
    default = parameter.default if length_ms is None or parameter is not LENGTH else length_ms
    return f"`{flag}`", f"`{parameter.key}`", _default_text(parameter, default), allowed(parameter)


def _default_text(parameter: FaultParameter, value: Any) -> str:
    match value:
        case None:
            return "(required)" if parameter.is_required else "until cleared" if parameter is LENGTH else ""
        case Enum():
            return str(value.value)
        case _ if parameter.key.endswith("_ms"):
            return short_duration(value)
        case _:
            return f"{value:g}"


def allowed(parameter: FaultParameter) -> str:
    """What is said to whoever gives something else."""
    try:
        parameter.read(object())
    except InvalidParameter as wrong:
        return str(wrong).partition(", got")[0].removeprefix("must be ")
    raise AssertionError(f"{parameter.key} takes anything")


def _example_of(fault: str) -> list[str]:
    from twinbus.cli.commands.fault import add

    found = [line.strip() for line in (add.__doc__ or "").splitlines() if f"fault add {fault} " in f"{line} "]
    return [re.sub(r"\s{2,}", "    # ", line) for line in found]


# --- what all pages need ---


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _page(title: str, *lines: str) -> str:
    return "\n".join((f"# {title}", "", DONE_BY, "", *lines)).rstrip("\n") + "\n"


PAGES: Mapping[str, Callable[[], str]] = {"cli.md": commands_page, "errors.md": errors_page, "faults.md": faults_page}


def write(folder: Path) -> list[Path]:
    """The pages that were not as they should be; now they are."""
    stale = [folder / name for name, page in PAGES.items() if not is_fresh(folder / name, page())]
    for path in stale:
        path.write_text(PAGES[path.name](), encoding="utf-8")
    return stale


if __name__ == "__main__":
    for written in write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")):
        sys.stdout.write(f"{written}\n")
