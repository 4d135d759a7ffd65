"""The verbs of `twinbus`, each imported when it is needed.

Nearly every run needs one of them. To import all, and to make parsers of their options, took as long as to start Python
and to import Typer, each time.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from twinbus.cli.arguments.option_groups import add_command


def add_commands(app: typer.Typer, only: str | None = None) -> None:
    """Add all of them, or the one that is called so."""
    for add in COMMANDS.values() if only is None else [COMMANDS[only]]:
        add(app)


def _serve(app: typer.Typer) -> None:
    from twinbus.cli.commands.serve import serve

    add_command(app, serve)


def _proxy(app: typer.Typer) -> None:
    from twinbus.cli.commands.proxy import proxy

    add_command(app, proxy, "Let applications in any language use a pair.")


def _demo(app: typer.Typer) -> None:
    from twinbus.cli.commands.demo import demo

    add_command(app, demo, "Kill a namespace while it works; lose nothing.")


def _send(app: typer.Typer) -> None:
    from twinbus.cli.commands.send import send

    add_command(app, send, "Send messages, and say where they are.")


def _receive(app: typer.Typer) -> None:
    from twinbus.cli.commands.receive import FEWER, receive

    add_command(app, receive, "Look at messages, or take them.", not_all=FEWER)


def _backup(app: typer.Typer) -> None:
    from twinbus.cli.commands.backup import backup

    add_command(app, backup, "Copy namespaces while they work.")


def _bench(app: typer.Typer) -> None:
    from twinbus.cli.commands.bench import bench

    add_command(app, bench, "Measure what a namespace does.")


def _pair(app: typer.Typer) -> None:
    from twinbus.cli.commands.pair import NOT_EXACT, pair

    add_command(app, pair, "Make two namespaces ready for an outage.", not_all=NOT_EXACT)


def _status(app: typer.Typer) -> None:
    from twinbus.cli.status.status import HEALTHY, UNSURE, status

    about = "Show how a pair is doing, in one verdict."
    add_command(app, status, about, done=HEALTHY, not_all=UNSURE, verdicts=True)


def _console(app: typer.Typer) -> None:
    from twinbus.cli.commands.console import console

    add_command(app, console, "Serve a web page that shows a pair live, with buttons.")


def _drill(app: typer.Typer) -> None:
    from twinbus.cli.commands.drill import NOT_PUT_BACK, drill

    add_command(app, drill, "Make an entity fail on purpose, and measure.", not_all=NOT_PUT_BACK)


def _fault(app: typer.Typer) -> None:
    from twinbus.cli.commands.fault import fault_commands

    app.add_typer(fault_commands(), name="fault")


def _ledger(app: typer.Typer) -> None:
    from twinbus.cli.commands.ledger import ledger_commands

    app.add_typer(ledger_commands(), name="ledger", short_help="Look at what was recorded, and see if all is there.")


def _pipeline(app: typer.Typer) -> None:
    from twinbus.cli.pipeline.pipeline import pipeline_commands

    app.add_typer(pipeline_commands(), name="pipeline", short_help="Work on Spark: reports, and large backlogs.")


def _cost(app: typer.Typer) -> None:
    from twinbus.cli.commands.cost import cost_commands

    app.add_typer(cost_commands(), name="cost")


def _message(app: typer.Typer) -> None:
    from twinbus.cli.commands.message import message_commands

    about = "Look at single messages, resubmit, dead-letter, purge."
    app.add_typer(message_commands(), name="message", short_help=about)


def _syphon(app: typer.Typer) -> None:
    from twinbus.cli.syphon.syphon import syphon_commands

    app.add_typer(syphon_commands(), name="syphon", short_help="Bring the backlog home.")


COMMANDS: dict[str, Callable[[typer.Typer], None]] = {
    "serve": _serve,
    "proxy": _proxy,
    "demo": _demo,
    "send": _send,
    "receive": _receive,
    "backup": _backup,
    "bench": _bench,
    "pair": _pair,
    "status": _status,
    "console": _console,
    "drill": _drill,
    "fault": _fault,
    "ledger": _ledger,
    "pipeline": _pipeline,
    "cost": _cost,
    "message": _message,
    "syphon": _syphon,
}
"""In the order of the help."""
