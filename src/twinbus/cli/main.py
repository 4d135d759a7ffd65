"""The `twinbus` command: its verbs, and what becomes of errors.

Every error is one line on stderr. Wrong arguments end with exit code 2, anything else that goes wrong with 1.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, NoReturn

import typer

from twinbus import __version__
from twinbus.cli import signals
from twinbus.cli.arguments.completion import use_our_zsh_script
from twinbus.cli.arguments.option_groups import PanelGroup, accept_old_names
from twinbus.cli.command_table import COMMANDS, add_commands
from twinbus.cli.exit_codes import ExitCode, exit_codes
from twinbus.cli.output import error_line, hide_typed, say, traceback_text
from twinbus.errors import OptionsError, TwinbusError
from twinbus.plain_text import LogLines

EXAMPLES = """\b
Examples:
  twinbus serve                  a Service Bus namespace on this machine
  twinbus send orders 'hello'    a message for it
  twinbus receive orders         and out again
  twinbus demo                   watch a namespace being killed, lose nothing
  twinbus fault add no-send      make the namespace refuse every send
  twinbus pair                   make two namespaces ready for an outage
  twinbus status                 is the pair healthy, what waits where
  twinbus console                the same as a web page, live
  twinbus proxy                  use the pair from any language
  twinbus syphon --until-empty   bring everything home that lies there
  twinbus drill --entity orders  make a queue fail, measure how that goes
  twinbus serve --help           what can be chosen; every command has one"""

NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)

# Typer brings its own copy of click in some releases and uses the installed one in others; this finds the right class.
UsageError: type[Exception] = typer.BadParameter.mro()[1]


class Interrupted(Exception):
    """Ctrl-C. Releases of Typer make different things of it, so it is caught before they see it."""


class Commands(PanelGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None


def make_app(only: str | None = None) -> typer.Typer:
    """All commands, or the one that is called so."""
    app = typer.Typer(
        name="twinbus",
        cls=Commands,
        epilog=f"{EXAMPLES}\n\n{exit_codes()}",
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(twinbus)
    add_commands(app, only)
    return app


def twinbus(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Keep applications sending when their message bus is down.

    twinbus has a durable Service Bus of its own, for tests and local work: the official azure-servicebus clients use it
    unchanged.
    """
    if version:
        say(f"twinbus {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `twinbus` with these arguments (the process's own by default) and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run `twinbus` and return its exit code."""
    use_our_zsh_script()
    typed = sys.argv[1:] if arguments is None else arguments
    only = typed[0] if typed and typed[0] in COMMANDS else None
    hide_typed(typed)
    if logging.lastResort is not None:  # writes what no handler takes
        logging.lastResort.setFormatter(LogLines("twinbus: "))
    logging.getLogger("azure").addHandler(logging.NullHandler())  # its errors are shown in one line
    try:
        code = _commands(only).main(args=arguments, prog_name="twinbus", standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        return _fail(usage_text(error), ExitCode.WRONG_ARGUMENTS)
    except OptionsError as error:
        return _fail(f"{error}", ExitCode.WRONG_ARGUMENTS)
    except (Interrupted, KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", ExitCode.INTERRUPTED)
    except Exception as error:
        if signals.was_interrupted():  # a library made a failure of it
            return _fail("interrupted", ExitCode.INTERRUPTED)
        return _failed(error)
    return code if isinstance(code, int) else 0


@cache
def _commands(only: str | None = None) -> Any:
    """The commands (see `make_app`), ready to parse arguments."""
    command = typer.main.get_command(make_app(only))
    accept_old_names(command)
    return command


def _failed(error: Exception) -> int:
    match error:
        case TwinbusError():
            return _fail(f"{error}", ExitCode.FAILED)
        case BrokenPipeError():
            _forget_output()
            return ExitCode.FAILED
        case OSError(filename=None, errno=number) if number in NO_ROOM:
            _forget_output()
            return _fail(f"the output cannot be written: {error.strerror}", ExitCode.FAILED)
        case _:
            return _unexpected(error)


def _unexpected(error: Exception) -> int:
    """A mistake of ours; people at a prompt are still spared a page of it."""
    if os.environ.get("TWINBUS_TRACEBACK"):
        sys.stderr.write(traceback_text(traceback.format_exc()))
    return _fail(f"unexpected {type(error).__name__}: {error} (TWINBUS_TRACEBACK=1 shows where)", ExitCode.FAILED)


def _forget_output() -> None:
    """What could not be written is not tried again, else the interpreter complains when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, code: ExitCode) -> int:
    with suppress(OSError):  # nobody may be there any more to read it
        sys.stderr.write(f"twinbus: {error_line(text)}\n")
    return code


def usage_text(error: Any) -> str:
    """What was wrong with the arguments, and what would be right."""
    text = str(error.format_message()).rstrip(".")
    option = getattr(error, "option_name", "")
    if error.ctx is None:
        return f"{option} needs a value: {option} {_value_of(option)}" if "requires an argument" in text else text
    names = _option_names(error.ctx)
    if text.startswith("No such option"):
        text = f"no such option {option}; {_choices(option, names, 'options')}"
    elif text.startswith("No such command"):
        typed = text.removeprefix("No such command ").split(". Did you mean")[0]
        text = f"no such command {typed}; {_choices(typed, list(error.ctx.command.commands), 'commands')}"
    elif text.startswith("Got unexpected extra argument"):
        arguments = [param.metavar for param in error.ctx.command.params if param.param_type_name == "argument"]
        takes = " ".join(arguments) + " and options" if arguments else "options only"
        text = f"{error.ctx.command_path} takes {takes}, which are {', '.join(names)};{text.removeprefix('Got')}"
    return f"{text} (see: {error.ctx.command_path} --help)"


def _value_of(option: str) -> str:
    """What has to follow an option, as in the help."""
    params = _params_of(_commands())
    return next((str(param.metavar) for param in params if option in param.opts), "VALUE")


def _params_of(command: Any) -> Iterator[Any]:
    """The options and arguments of a command and of all below it."""
    yield from command.params
    for each in getattr(command, "commands", {}).values():
        yield from _params_of(each)


def _option_names(context: Any) -> list[str]:
    return [name for param in context.command.get_params(context) for name in param.opts if name.startswith("--")]


def _choices(typed: str, names: list[str], kind: str) -> str:
    close = get_close_matches(typed.strip("'\""), names, n=1, cutoff=0.75)
    return f"did you mean {close[0]}?" if close else f"{kind} are {', '.join(names)}"
