"""How two namespaces are paired: frozen values, checked once, all problems in one message.

Lengths of time are `timedelta` only. A bare number would have to be guessed to be seconds, and the guess is wrong
exactly for those who think in the milliseconds or minutes of another client.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from twinbus.errors import OptionsError
from twinbus.pairing.rules import Rules
from twinbus.pairing.sending.error_class import Classifier, classifier_for
from twinbus.units import exact_duration, parse_size

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace

TimeRange = tuple[timedelta, timedelta]
NumberRange = tuple[float, float]

RETRY_TIMES: Mapping[str, TimeRange] = {
    "backoff_min": (timedelta(0), timedelta(minutes=1)),
    "backoff_max": (timedelta(0), timedelta(minutes=5)),
}
RETRY_NUMBERS: Mapping[str, NumberRange] = {"attempts": (1, 20)}

TIMES: Mapping[str, TimeRange] = {
    "failover_interval": (timedelta(0), timedelta(minutes=60)),
    "ping_primary_interval": (timedelta(seconds=1), timedelta(minutes=30)),
    "attempt_timeout": (timedelta(milliseconds=100), timedelta(minutes=2)),
    "probation": (timedelta(seconds=1), timedelta(hours=1)),
    "hold_time_max": (timedelta(milliseconds=100), timedelta(hours=1)),
    "failover_error_window": (timedelta(seconds=1), timedelta(hours=1)),
}
NUMBERS: Mapping[str, NumberRange] = {
    "backlog_queue_count": (1, 100),
    "pings_to_return": (1, 100),
    "hold_count_max": (1, 1_000_000),
    "hold_bytes_max": (1_024, 4 * 1024**3),
    "failover_error_sends_min": (1, 100_000),
    "spool_max": (64 * 1024, 2**50),
}
CHOICES: Mapping[str, tuple[str | None, ...]] = {
    "probe": ("auto", "ping", "link"),
    "ttl": ("remaining", "restart"),
    "order": (None, "session"),
}
FLAGS = ("enable_syphon", "hold_sends", "create_backlog", "board")

SECRET_BYTES_MIN, QUORUM_MIN = 16, 2
ENTITY_NAME_LENGTH_MAX = 260
NAME_RULE = "2 to 50 letters, digits and hyphens, a letter first and no hyphen last"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,48}[A-Za-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a failing attempt is repeated before it counts as a failure, and how long to wait between."""

    attempts: int = 3
    """Attempts in all, the first one included."""
    backoff_min: timedelta = timedelta(milliseconds=200)
    """The wait before the second attempt; it doubles from one attempt to the next."""
    backoff_max: timedelta = timedelta(seconds=2)
    """The longest wait between two attempts."""

    def __post_init__(self) -> None:
        problems = [*_time_problems(self, RETRY_TIMES), *_number_problems(self, RETRY_NUMBERS)]
        if not problems and self.backoff_max < self.backoff_min:
            shortest, longest = exact_duration(self.backoff_min), exact_duration(self.backoff_max)
            problems.append(f"backoff_max must not be less than backoff_min ({shortest}), got {longest}")
        _refuse(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFailover:
    """Which hosts may shorten the failover interval here, and how they prove who they are."""

    keys: Mapping[str, bytes | str] = field(repr=False)
    """A secret of at least 16 bytes for each host, the own one included; every host of the pair has the same list."""
    host: str | None = None
    """What this host is called in the list; None: its host name."""
    quorum: int = 2
    """How many other hosts must have failed an entity over."""

    def __post_init__(self) -> None:
        _refuse(list(self._problems()))

    @property
    def own_host(self) -> str:
        return self.host or socket.gethostname()

    def key_bytes(self) -> dict[str, bytes]:
        return {host: key.encode() if isinstance(key, str) else key for host, key in self.keys.items()}

    def _problems(self) -> Iterator[str]:
        given: object = self.keys
        if not (isinstance(given, Mapping) and all(isinstance(key, bytes | str) for key in given.values())):
            yield "keys must be a secret for each host, as bytes or text"
            return
        short = [host for host, key in self.key_bytes().items() if len(key) < SECRET_BYTES_MIN]
        if short:
            yield f"keys must have at least {SECRET_BYTES_MIN} bytes each: those of {', '.join(short)} are shorter"
        if len(set(self.key_bytes().values())) < len(self.keys):
            yield "keys must differ from host to host"
        if self.own_host not in self.keys:
            yield f"keys must have one for this host, {self.own_host}"
        quorum: object = self.quorum
        if not isinstance(quorum, int) or isinstance(quorum, bool) or quorum < QUORUM_MIN:
            yield f"quorum must be {QUORUM_MIN} or more, got {quorum!r}"
        elif quorum > len(self.keys) - 1:
            yield f"quorum must not be more than the other hosts ({len(self.keys) - 1}), got {self.quorum}"


@dataclass(frozen=True, slots=True)
class PairedNamespaceOptions:
    """What every kind of pairing has: the other namespace, and how long failures are accepted."""

    secondary: Namespace
    """Where the backlog queues are. Several primaries may share one."""
    _: KW_ONLY
    failover_interval: timedelta = timedelta(minutes=1)
    """How long an entity of the primary may fail before its messages go to the secondary. Any success starts the time
    anew; zero: the first failure that counts switches, and the very message that failed is saved."""

    def __post_init__(self) -> None:
        _refuse(self._problems())

    def _problems(self) -> list[str]:
        ours = {name: limits for name, limits in TIMES.items() if hasattr(self, name)}
        return [*_secondary_problems(self.secondary), *_time_problems(self, ours)]


@dataclass(frozen=True, slots=True)
class SendAvailabilityPairedNamespaceOptions(PairedNamespaceOptions):
    """Pairing that keeps applications sending: options of the documents first, then our additions."""

    _: KW_ONLY
    backlog_queue_count: int = 10
    """How many backlog queues are looked for, and created where they are missing. Each holds 5 GB. With 1 there is no
    other one to try when it fails."""
    ping_primary_interval: timedelta = timedelta(minutes=1)
    """How often an entity that is failed over is pinged, give or take a tenth so that clients do not ping in step."""
    enable_syphon: bool = False
    """Whether this process brings the backlog home. Applications that only send leave it off; one process that has it
    on is enough for all."""
    syphon_entities: Sequence[str] | None = None
    """Entities of the primary that the syphon may bring messages to; None: all. What is for others stays in the
    backlog. Whoever may send to a backlog queue chooses where its messages go, and the syphon delivers them."""
    hold_sends: bool = False
    """Whether a send that fails during the failover interval waits, within the bounds below, until it is known where it
    goes; otherwise its error is raised."""
    hold_count_max: int = 1_000
    """How many sends may be held at a time."""
    hold_bytes_max: int = 64 * 1024 * 1024
    """How many bytes of messages may be held at a time."""
    hold_time_max: timedelta = timedelta(minutes=2)
    """How long one send may be held; after it the send raises that it was not sent."""
    classifier: Classifier | Literal["documented"] | None = None
    """Your own opinion on a failed send to the primary: a function of a `Failure` that returns an `ErrorClass`, or None
    for the table's. "documented" is the literal rule of the documents."""
    attempt_timeout: timedelta = timedelta(seconds=5)
    """How long one attempt may take, opening a connection included, even where the SDK would wait for ever."""
    retry: Retry = field(default_factory=Retry)
    """How often an attempt is repeated before the failure counts."""
    probation: timedelta = timedelta(minutes=1)
    """How long a backlog queue that failed is left alone before it is tried again."""
    probe: Literal["auto", "ping", "link"] = "auto"
    """How the primary is asked whether it is back: "ping" sends a message that the service drops; "link" opens a
    sender and lets the next message try the primary (if it fails it goes to the backlog, unseen by its caller), for
    servers that would deliver pings; "auto" pings if the primary has announced that it drops pings, else
    opens a link, also while this client has not connected to it yet."""
    pings_to_return: int = 1
    """How many pings in a row must succeed before an entity goes back to the primary, or links open before a message
    tries it."""
    ttl: Literal["remaining", "restart"] = "remaining"
    """Whether time to live goes on running in the backlog, or starts anew when a message comes home."""
    order: Literal["session"] | None = None
    """None: order may be lost on the detour. "session": messages of a session, or of an entity if they have none, come
    home in the order in which this process sent them; needs `enable_syphon`."""
    create_backlog: bool = True
    """Whether missing backlog queues are created, which needs Manage on the secondary. False: the ones that exist are
    used, and Send is enough."""
    failover_error_rate: float | None = None
    """Share of failed sends at which an entity is failed over although some succeed; None: never for that reason."""
    failover_error_window: timedelta = timedelta(minutes=1)
    """The time over which that share is taken."""
    failover_error_sends_min: int = 20
    """How many sends the window must hold before its share means anything."""
    primary_name: str | None = None
    """The primary's name in the paths of backlog queues; None: the `Namespace` has one (the first label of its host, or
    what its connection string says)."""
    entities: Sequence[str] = ()
    """Entities that are known to exist. For others "not found" is taken for a typing error until they were seen."""
    ledger: str | Path | None = None
    """Folder for the record of what the pairing does, and of what its receivers are done with; None: no record."""
    ledger_ship_to: str | None = None
    """Where finished segments of the ledger are copied to, e.g. `s3a://bucket/ledger`, by a thread; no send waits for
    it. None: where TWINBUS_LEDGER_SHIP_TO says, or nowhere."""
    spool: str | Path | None = None
    """Folder on the local disk for messages that neither namespace takes: they are stored there before the send
    returns, and go on as soon as the primary or the secondary is back. Processes may share it: each takes a sub-folder
    of its own. None: such a send raises `BothNamespacesUnavailable`."""
    spool_max: int | str = 1024**3
    """How many bytes of messages the spool of one process may hold, also as text, e.g. "2GB"."""

    board: bool = False
    """Whether this process says on the board how it is doing: a queue of the secondary that whoever may listen there
    can read. A report a minute, and every 20 s while anything is failed over, held, spooled or waiting; no send waits
    for it. Missing, it is created as backlog queues are."""

    share_failover: ShareFailover | None = None
    """Which other hosts' findings on the board may shorten the interval of an entity that fails here too; needs `board`
    and Listen on that queue. None: what others report changes nothing here."""

    def __post_init__(self) -> None:
        given: object = self.entities
        if isinstance(given, Iterable) and not isinstance(given, str):
            object.__setattr__(self, "entities", tuple(map(_without_slashes, given)))
        listed: object = self.syphon_entities
        if isinstance(listed, Iterable) and not isinstance(listed, str):
            object.__setattr__(self, "syphon_entities", tuple(map(_without_slashes, listed)))
        if isinstance(self.spool_max, str):
            object.__setattr__(self, "spool_max", parse_size(self.spool_max, "spool_max"))
        _refuse(self._problems())

    def _problems(self) -> list[str]:
        # Not super(): a dataclass with slots is made twice, and super() would be about the first one.
        return [
            *PairedNamespaceOptions._problems(self),
            *_number_problems(self, NUMBERS),
            *_flag_problems(self),
            *_choice_problems(self),
            *_error_rate_problems(self.failover_error_rate),
            *_kind_problems(self),
            *_name_problems(self),
        ]

    def rules(self) -> Rules:
        """The same in the seconds and numbers by which the core decides."""
        return Rules(
            failover_interval_s=self.failover_interval.total_seconds(),
            ping_interval_s=self.ping_primary_interval.total_seconds(),
            pings_to_return=self.pings_to_return,
            probation_s=self.probation.total_seconds(),
            attempt_s=self.attempt_timeout.total_seconds(),
            attempts=self.retry.attempts,
            backoff_min_s=self.retry.backoff_min.total_seconds(),
            backoff_max_s=self.retry.backoff_max.total_seconds(),
            hold_sends=self.hold_sends,
            hold_count_max=self.hold_count_max,
            hold_bytes_max=self.hold_bytes_max,
            hold_time_max_s=self.hold_time_max.total_seconds(),
            error_rate=self.failover_error_rate,
            error_window_s=self.failover_error_window.total_seconds(),
            error_sends_min=self.failover_error_sends_min,
            probe=self.probe,
            keeps_order=self.order == "session",
            has_spool=self.spool is not None,
        )

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but probably misconfigured; one line each."""
        if self.hold_sends and self.hold_time_max < self.failover_interval:
            longest, interval = exact_duration(self.hold_time_max), exact_duration(self.failover_interval)
            return (
                f"sends are held for at most {longest} and failover takes {interval}: "
                "the first ones will be given up before it (raise hold_time_max or lower failover_interval)",
            )
        return ()


def _refuse(problems: list[str]) -> None:
    OptionsError.raise_for(problems)


def _secondary_problems(secondary: object) -> Iterator[str]:
    # By its address and not by its class: the class would bring the whole SDK along.
    if isinstance(secondary, str):
        yield "secondary must be a Namespace, got text: use Namespace.from_connection_string(...)"
    elif not hasattr(secondary, "address"):
        yield f"secondary must be a Namespace, got {type(secondary).__name__}"


def _time_problems(options: object, ranges: Mapping[str, TimeRange]) -> Iterator[str]:
    for name, (low, high) in ranges.items():
        value: object = getattr(options, name)
        if not isinstance(value, timedelta):
            hint = f": write timedelta(seconds={value!r})" if type(value) in (int, float) else ""
            yield f"{name} must be a timedelta, got {value!r}{hint}"
        elif not low <= value <= high:
            yield f"{name} must be from {exact_duration(low)} to {exact_duration(high)}, got {exact_duration(value)}"


def _number_problems(options: object, ranges: Mapping[str, NumberRange]) -> Iterator[str]:
    for name, (low, high) in ranges.items():
        value: object = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool):
            yield f"{name} must be a whole number, got {value!r}"
        elif not low <= value <= high:
            yield f"{name} must be from {low} to {high}, got {value}"


def _flag_problems(options: object) -> Iterator[str]:
    for name in FLAGS:
        if not isinstance(getattr(options, name), bool):
            yield f"{name} must be True or False, got {getattr(options, name)!r}"


def _choice_problems(options: SendAvailabilityPairedNamespaceOptions) -> Iterator[str]:
    for name, choices in CHOICES.items():
        if getattr(options, name) not in choices:
            yield f"{name} must be {' or '.join(map(quoted, choices))}, got {getattr(options, name)!r}"
    if options.order == "session" and options.syphon_entities is not None:
        yield (
            'order="session" and syphon_entities exclude each other: a session returns to the primary only when its '
            "backlog queue was seen empty, and a message for another entity would stay there and keep it from that; "
            "leave syphon_entities out, and let the syphon's key send to those entities only"
        )
    if options.order == "session" and options.spool is not None:
        yield (
            'order="session" and spool exclude each other: what is in the spool of another process, or was left behind '
            "by one that was killed, could be overtaken; leave one of them out"
        )
    if options.order == "session" and options.enable_syphon is not True:
        yield (
            'order="session" needs enable_syphon=True in the same client: '
            "only who brings messages home knows when later ones may go to the primary again"
        )


def _error_rate_problems(rate: object) -> Iterator[str]:
    if rate is not None and not (isinstance(rate, int | float) and not isinstance(rate, bool) and 0 < rate <= 1):
        yield f"failover_error_rate must be above 0 and at most 1, or None, got {rate!r}"


def _kind_problems(options: SendAvailabilityPairedNamespaceOptions) -> Iterator[str]:
    if not isinstance(options.retry, Retry):
        yield f"retry must be a Retry, as Retry(attempts=3), got {options.retry!r}"
    if options.ledger is not None and not isinstance(options.ledger, str | Path):
        yield f"ledger must be a folder or None, got {options.ledger!r}"
    place: object = options.ledger_ship_to
    if place is not None and (not isinstance(place, str) or place == ""):
        yield f"ledger_ship_to must be a URL or None, got {place!r}"
    if place is not None and options.ledger is None:
        yield "ledger_ship_to needs ledger: segments of that folder are copied"
    share: object = options.share_failover
    if share is not None and not isinstance(share, ShareFailover):
        yield f"share_failover must be a ShareFailover or None, got {type(share).__name__}"
    if share is not None and options.board is not True:
        yield "share_failover needs board=True: findings are shared on the board"
    spool: object = options.spool
    if spool is not None and (not isinstance(spool, str | Path) or spool == ""):
        yield f"spool must be a folder or None, got {spool!r}"
    try:
        classifier_for(options.classifier)
    except OptionsError as problem:
        yield str(problem)


def _name_problems(options: SendAvailabilityPairedNamespaceOptions) -> Iterator[str]:
    name: object = options.primary_name
    if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
        yield f"primary_name has {NAME_RULE}, got {name!r}"
    yield from _entity_problems("entities", options.entities)
    if options.syphon_entities is not None:
        yield from _entity_problems("syphon_entities", options.syphon_entities)
    if options.syphon_entities == ():
        yield "syphon_entities must name an entity, or be None for all; a process without a syphon leaves it out"


def _entity_problems(name: str, given: object) -> Iterator[str]:
    if not isinstance(given, tuple):
        yield f'{name} must be several names, as ("orders", "invoices"), got {given!r}'
        return
    wrong = [entity for entity in given if not _is_entity_name(entity)]
    if wrong:
        yield f"{name} must be names of 1 to {ENTITY_NAME_LENGTH_MAX} characters, got {wrong!r}"


def _without_slashes(entity: object) -> object:
    """A name as the service knows it: slashes around it do not count."""
    return entity.strip("/") if isinstance(entity, str) else entity


def _is_entity_name(entity: object) -> bool:
    return isinstance(entity, str) and len(entity.strip()) > 0 and len(entity) <= ENTITY_NAME_LENGTH_MAX


def quoted(choice: str | None) -> str:
    return "None" if choice is None else f'"{choice}"'
