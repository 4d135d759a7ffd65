"""Every option of the paired client as an option of a command: made of the fields of its options.

The name and the default are those of the field: `failover_interval=timedelta(minutes=1)` is `--failover-interval 1m`.
An option that the client gets later is an option of the command as soon as it has a line of help here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, make_dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinbus.cli.arguments.completion import one_of
from twinbus.cli.arguments.option_groups import SHIP_HELP, ArgumentGroup, check_ship_to, option
from twinbus.client.options import CHOICES, Retry, SendAvailabilityPairedNamespaceOptions, ShareFailover
from twinbus.errors import OptionsError
from twinbus.units import option_duration, option_size, parse_duration, parse_size

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace

HELP: Mapping[str, str] = {
    "failover_interval": "How long an entity may fail before its messages go to the secondary; 0s: at once.",
    "backlog_queue_count": "How many backlog queues are looked for, and created where they are missing.",
    "ping_primary_interval": "How often an entity that is failed over is asked whether it is back.",
    "enable_syphon": "A syphon runs in this process and brings the backlog home. One is enough for all processes.",
    "syphon_entities": "An entity that the syphon may bring messages to. Repeat for more.  [default: all]",
    "hold_sends": "Let a send that fails before failover wait until it is known where it goes, instead of failing.",
    "hold_count_max": "How many sends may wait so at a time.",
    "hold_bytes_max": "How many bytes of messages may wait so at a time.",
    "hold_time_max": "How long one send may wait so.",
    "classifier": "Which errors count as an outage: the literal rule of the documents.  [default: our own table]",
    "attempt_timeout": "How long one attempt may take, opening a connection included.",
    "retry.attempts": "Attempts before a failure counts, the first one included.",
    "retry.backoff_min": "The wait before the second attempt; it doubles from one attempt to the next.",
    "retry.backoff_max": "The longest wait between two attempts.",
    "probation": "How long a backlog queue that failed is left alone.",
    "probe": "How the primary is asked whether it is back: auto, ping or link.",
    "pings_to_return": "How many such questions in a row must succeed before messages go to the primary again.",
    "ttl": "Time to live in the backlog: remaining (it goes on running) or restart (it starts anew at home).",
    "order": "session: messages of a session come home in the order sent; needs --syphon.  [default: any]",
    "create_backlog": "Create missing backlog queues, which needs Manage on the secondary; or use those that exist.",
    "failover_error_rate": "Share of failed sends, e.g. 0.5, at which an entity is failed over although some succeed.  "
    "[default: never for that reason]",
    "failover_error_window": "The time over which that share is taken.",
    "failover_error_sends_min": "How many sends that time must have before the share means anything.",
    "primary_name": "Primary's name in backlog queue paths, if it cannot be derived from the host.",
    "entities": "An entity that is known to exist: if it is not found, that is an outage. Repeat for more.",
    "ledger": "The ledger in which everything is recorded that happens to a message.",
    "ledger_ship_to": SHIP_HELP,
    "spool": "The folder on the local disk for messages that neither namespace takes.  [default: such sends fail]",
    "board": "The board of the pair: say there how this process is doing; twinbus status shows it.",
    "share_failover": "A TOML file with a quorum and a secret for each host: what a quorum of them says on the board "
    "shortens the interval; needs --board.  [default: what others report changes nothing]",
    "spool_max": "How many bytes of messages that folder may hold, for each process.",
}
"""By option of the client."""

SIZES = frozenset({"hold_bytes_max", "spool_max"})
FOLDERS = frozenset({"ledger", "spool"})
LISTS = frozenset({"entities", "syphon_entities"})
FLAG_NAMES = {"enable_syphon": ("--syphon",)}
"""Where the name differs."""
NOT_HERE = frozenset({"secondary"})
"""What other options say."""


def flag_of(name: str) -> str:
    """`--failover-interval` for `failover_interval`, `--retry-attempts` for `retry.attempts`."""
    return FLAG_NAMES.get(name, ("--" + name.replace("_", "-").replace(".", "-"),))[0]


class _Declared:
    """One option of the command, and how its value becomes one of the client's."""

    def __init__(self, name: str, default: Any) -> None:
        self.name = name
        """As in `HELP`."""
        self.argument = name.replace(".", "_")
        self.kind, self.field, self.read = self._declare(default)

    def _declare(self, default: Any) -> tuple[Any, Any, Callable[[Any], Any]]:
        name, flag, help_text = self.name, flag_of(self.name), HELP[self.name]
        match default:
            case bool():
                names = FLAG_NAMES.get(name, (f"{flag}/--no-{flag[2:]}" if default else flag,))
                return bool, option(default, None, help_text, *names), lambda value: value
            case timedelta():
                read = lambda text: timedelta(milliseconds=parse_duration(text, flag))  # noqa: E731
                return str, option(option_duration(default), "TIME", help_text, flag), read
            case int() if name in SIZES:
                return str, option(option_size(default), "SIZE", help_text, flag), lambda text: parse_size(text, flag)
            case int():
                return int, option(default, "N", help_text, flag), lambda value: value
            case _:
                pass  # its name says what it is
        if name in FOLDERS:
            return Path | None, option(None, "DIR", help_text, flag), self._read_folder
        if name in LISTS:
            return list[str] | None, option(None, "NAME", help_text, flag), lambda names: tuple(names or ()) or default
        if name == "ledger_ship_to":
            return str | None, option(None, "URL", help_text, flag), lambda place: place
        if name == "share_failover":
            return Path | None, option(None, "FILE", help_text, flag), self._read_share
        if name == "failover_error_rate":
            return float | None, option(None, "SHARE", help_text, flag), lambda value: value
        choices = {"classifier": ("documented",)}.get(name, CHOICES.get(name, ()))
        words = [word for word in choices if word is not None]
        completion = {"autocompletion": one_of(*words)} if words else {}
        metavar = "HOW" if words else "NAME"
        return str | None, option(default, metavar, help_text, flag, **completion), lambda value: value

    def _read_share(self, file: Path | None) -> ShareFailover | None:
        if file is None:
            return None
        try:
            settings = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise OptionsError(f"{flag_of(self.name)} cannot read {file}: {error}") from None
        unknown = sorted(settings.keys() - {"host", "quorum", "keys"})
        if unknown or "keys" not in settings:
            what = f"not {unknown[0]}" if unknown else "and keys are missing"
            raise OptionsError(f"{flag_of(self.name)}: {file} may have host, quorum and [keys], {what}")
        return ShareFailover(**settings)

    def _read_folder(self, folder: Path | None) -> Path | None:
        if folder is not None and str(folder) in ("", "."):
            raise OptionsError(f"{flag_of(self.name)} takes a folder of its own, not the current one")
        return folder


def _declared() -> Iterator[_Declared]:
    for each in fields(SendAvailabilityPairedNamespaceOptions):
        if each.name in NOT_HERE:
            continue
        default = _default_of(each)
        if isinstance(default, Retry):
            yield from (_Declared(f"{each.name}.{part.name}", getattr(default, part.name)) for part in fields(Retry))
        else:
            yield _Declared(each.name, default)


def _default_of(declared: Field[Any]) -> Any:
    return declared.default_factory() if declared.default_factory is not MISSING else declared.default


DECLARED = tuple(_declared())


class _PairingArguments(ArgumentGroup):
    def options(self, secondary: Namespace) -> SendAvailabilityPairedNamespaceOptions:
        """The options of a paired client; raises `OptionsError` with everything that is wrong, in terms of flags."""
        values: dict[str, Any] = {"secondary": secondary}
        retry: dict[str, Any] = {}
        for each in DECLARED:
            value = each.read(getattr(self, each.argument))
            group, _, part = each.name.partition(".")
            (retry if part else values)[part or group] = value
        check_ship_to(values["ledger"], values["ledger_ship_to"])
        try:
            return SendAvailabilityPairedNamespaceOptions(**values, retry=Retry(**retry))
        except OptionsError as error:
            raise OptionsError(in_flags(str(error))) from None


def in_flags(text: str) -> str:
    """A text about options of the client, with the names that they have on the command line."""
    names = {name.removeprefix("retry."): flag_of(name) for name in HELP}
    plain = "|".join([name for name in names if "_" not in name])
    long = "|".join(sorted(names.keys() - plain.split("|"), key=len, reverse=True))
    # Some names are common words: they are replaced only where they clearly mean an option.
    return re.sub(
        rf'(?<![\w-])({long}|(?:{plain})(?= must| has| exclude|="))(?:="(\w+)"|=True)?(?!\w)',
        lambda found: names[found[1]] + (f" {found[2]}" if found[2] else ""),
        text,
    )


if TYPE_CHECKING:

    class PairingArguments(_PairingArguments):
        """A group of arguments with one for each option of the client."""

else:
    PairingArguments = make_dataclass(
        "PairingArguments",
        [(each.argument, each.kind, each.field) for each in DECLARED],
        bases=(_PairingArguments,),
        namespace={"panel": "Pairing"},
        frozen=True,
        kw_only=True,
    )
