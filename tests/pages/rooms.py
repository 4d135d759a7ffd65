"""The rooms of the package: what each speaks of and what it may import. The table in ARCHITECTURE.md is made of this.

`PYTHONPATH=tests python -m pages.rooms ARCHITECTURE.md` writes the table; `tests/test_rooms.py` holds every import of
every file to these rules.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

BEGIN, END = "<!-- rooms: made by `make pages` -->", "<!-- end of rooms -->"


@dataclass(frozen=True)
class Room:
    name: str
    """A package or module below `twinbus`; of several that fit a file, the longest decides."""
    speaks_of: str
    may_import: str = ""
    """Beside the room itself, `errors` and `deprecated`; `twinbus` is the package's `__init__`, `*` is everything."""
    is_pure: bool = False
    """It decides and does nothing: no clock, no chance, no threads, no I/O."""


BROKER_VALUES = "broker.core.commands broker.message broker.core.replies"

ROOMS = (
    # what everybody uses
    Room("errors", "exceptions raised on purpose", "pairing.sending.receipt", is_pure=True),
    Room("deprecated", "old public names, and what they are called now", is_pure=True),
    Room("ranges", "numbers within bounds", is_pure=True),
    Room("units", "durations, times and sizes as text", is_pure=True),
    Room("plain_text", "texts of others, made harmless", is_pure=True),
    Room("connection_string", "how a namespace is reached, in one line", is_pure=True),
    Room("earliest_timer", "one call in the future, at the earliest time asked for"),
    Room("own_files", "files for their owner only, links that are not followed"),
    Room("storage", "files in local folders and at URLs, leases", "own_files units"),
    Room("control", "processes of this machine, registered, asked and steered", "own_files"),
    Room("options", "options of a namespace, and of whatever is reached as one", "broker connection_string"),
    Room("limit_names", "every limit under one name", "broker.faults broker.limits options"),
    # both ends of the protocol
    Room("amqp", "bytes, frames, sessions, links, credit, deliveries", "ranges", is_pure=True),
    Room("amqp.codec", "types, performatives and frames as bytes", is_pure=True),
    Room("amqp.message", "sections of encoded messages", "amqp.codec", is_pure=True),
    Room("websocket", "AMQP bytes in WebSocket messages"),
    Room("transport", "how our own engine reaches a peer", "amqp earliest_timer pairing.sending.failure websocket"),
    # the paired client
    Room("pairing", "entities, epochs, failover, backlog queues, envelopes, order", "amqp", is_pure=True),
    Room("client", "namespaces, credentials and options", "connection_string pairing transport client units"),
    Room(
        "client.core",
        "the effects of the pairing core, the state of a client",
        "amqp board client ledger pairing spool syphon transport",
    ),
    Room("client.flows", "conversations, each written once: asks, answers", "client.sdk pairing", is_pure=True),
    Room("client.sdk", "the official SDK: its private parts, messages, deadlines", "amqp client pairing"),
    Room("client.setup", "what must exist before the first outage", "client pairing"),
    Room("client.setup.plan", "what is to be prepared", "board.queue pairing", is_pure=True),
    Room("client.setup.findings", "what was found, in words", "client.setup pairing units", is_pure=True),
    Room("client.setup.preparation", "how a pair is prepared", "client.setup pairing", is_pure=True),
    Room("client.setup.queue_settings", "settings that can cost messages", "units", is_pure=True),
    Room(
        "client.reporting",
        "status, events, metrics, ledger records",
        "amqp board client ledger pairing plain_text units",
    ),
    Room("client.inspection.freshness", "how old what is shown may be", is_pure=True),
    Room(
        "client.inspection",
        "a pair seen from outside",
        "amqp board client ledger pairing plain_text syphon transport units",
    ),
    Room("client.aio", "the client for asyncio", "board client pairing syphon"),
    Room("client.sync", "the client for threads", "board client pairing syphon"),
    Room("client.native", "links of our own engine for a pair", "amqp client earliest_timer pairing transport"),
    Room(
        "client.native.send_window",
        "what is on its way on one link, and until when",
        "amqp client.native pairing transport",
        is_pure=True,
    ),
    Room("client.native.failures", "failures of such links", "pairing", is_pure=True),
    # the embedded namespace
    Room(
        "broker",
        "a running namespace, put together",
        "amqp broker connection_string options own_files units",
    ),
    Room("broker.operations", "operations, rights, settlement, results", is_pure=True),
    Room(
        "broker.message",
        "encoded messages and the facts in them",
        "amqp.codec amqp.message",
        is_pure=True,
    ),
    Room("broker.clock", "where time comes from"),
    Room("broker.store", "rows, sequences, transactions, files", "own_files"),
    Room("broker.filters", "conditions and actions of rules", "amqp.codec amqp.message", is_pure=True),
    Room(
        "broker.core",
        "commands, changes, replies, the commit gate",
        (
            "amqp.codec amqp.message broker.entities broker.message broker.operations broker.store.api "
            "broker.links.backend broker.links.request_fields broker.links.request_messages broker.ops.meter"
        ),
        is_pure=True,
    ),
    Room(
        "broker.entities",
        "queues, topics, subscriptions, locks, sessions, rules",
        f"{BROKER_VALUES} amqp.codec broker.core.message_events broker.filters broker.operations broker.store.api",
        is_pure=True,
    ),
    Room("broker.auth", "keys, tokens, claims", "broker.operations", is_pure=True),
    Room(
        "broker.auth.keyring",
        "the keys of a running namespace",
        "broker.auth broker.core.registry broker.data_directory broker.entities broker.operations connection_string",
    ),
    Room("broker.faults", "faults, scopes, throttling", "broker.operations units", is_pure=True),
    Room(
        "broker.links",
        "attach, deliveries, settlement, `$cbs`, `$management`; asks a back end and does not know which",
        ("amqp broker.auth broker.faults broker.limits broker.message broker.operations broker.ops.meter"),
        is_pure=True,
    ),
    Room(
        "broker.admin",
        "routes, documents, fields of the HTTP administration",
        (
            "broker.auth broker.core broker.entities broker.faults broker.filters broker.links "
            "broker.operations broker.ops broker.data_directory units"
        ),
    ),
    Room(
        "broker.net",
        "sockets, TLS, HTTP, WebSocket",
        (
            "amqp broker.data_directory broker.limits broker.links broker.ops.process_memory earliest_timer options "
            "own_files websocket"
        ),
    ),
    Room("broker.net.sniffer", "the first bytes of a connection", is_pure=True),
    Room("broker.limits", "what peers may take", "amqp.limits ranges", is_pure=True),
    Room(
        "broker.ops",
        "metrics, the control socket, dumps, backups, ledger events",
        "twinbus amqp board.queue broker control ledger own_files pairing.backlog.backlog_queues units",
    ),
    Room("broker.ops.meter", "operations and bytes, counted", "broker.message", is_pure=True),
    # the board
    Room(
        "board",
        "reports of processes, the fleet they make, when to post and what to read",
        "plain_text units",
        is_pure=True,
    ),
    Room("board.message", "a report as a message", "amqp board", is_pure=True),
    Room("board.reader", "the board, read", "board pairing.sending.failure transport"),
    Room("board.poster", "reports, posted", "amqp board pairing.sending.failure transport"),
    Room("board.sharer", "findings of other hosts, read in the background", "board transport"),
    # the way home and the record
    Room(
        "syphon",
        "the pump, its pace, order, quarantine; steered from outside",
        "amqp control ledger pairing plain_text ranges transport",
    ),
    Room(
        "syphon.pump",
        "what goes where, what is settled, and when",
        "amqp ledger.kinds pairing plain_text syphon transport.failures transport.links.annotations",
        is_pure=True,
    ),
    Room(
        "messages",
        "single messages: found, resubmitted, dead-lettered, purged",
        "amqp pairing syphon transport",
    ),
    Room(
        "spool",
        "messages on the local disk, the folders they are in, the thread that keeps them",
        "amqp broker control ledger own_files pairing syphon transport units",
    ),
    Room(
        "spool.contents",
        "what is in a spool, and how much may be",
        "amqp broker.core broker.entities broker.message broker.operations pairing syphon transport units",
        is_pure=True,
    ),
    Room("ledger", "events, segments, gaps", "own_files ranges storage units"),
    Room("cost", "prices, operations, bills", "board ledger units", is_pure=True),
    # pairing for any language
    Room(
        "proxy",
        "a Service Bus endpoint in front of a pair",
        ("twinbus amqp board.report broker client control ledger options pairing plain_text proxy transport"),
    ),
    Room("proxy.entity_paths", "paths that mean the same to everybody", is_pure=True),
    Room(
        "proxy.administration.admin_documents",
        "host names in administration documents",
        "broker proxy.administration.atom_places proxy.entity_paths",
        is_pure=True,
    ),
    Room("proxy.administration.atom_places", "addresses and keys in ATOM documents", "broker.admin", is_pure=True),
    Room("proxy.readiness", "whether there is a place for messages", "client.reporting", is_pure=True),
    Room(
        "proxy.relay.relay",
        "receivers and requests, passed on to the primary",
        (
            "amqp broker.links broker.operations pairing proxy.entity_paths proxy.relay.requested_messages "
            "proxy.relay.upstream_port transport.links.link_handler"
        ),
        is_pure=True,
    ),
    Room(
        "proxy.relay.requested_messages",
        "messages received and settled by request",
        "broker.links broker.operations transport.links.requests",
        is_pure=True,
    ),
    Room(
        "proxy.relay.upstream_port",
        "what the relay needs of the primary",
        "amqp broker.links broker.operations pairing transport.links.link_handler",
        is_pure=True,
    ),
    Room(
        "proxy.relay.transactions",
        "transactions, passed on to the primary alone",
        (
            "broker.links broker.operations pairing proxy.relay.relay proxy.relay.requested_messages "
            "proxy.relay.upstream_port"
        ),
        is_pure=True,
    ),
    Room(
        "proxy.backend",
        "the pair as a back end of links",
        "broker proxy.relay.relay proxy.sending.schedules proxy.relay.transactions",
        is_pure=True,
    ),
    Room(
        "proxy.sending.routing",
        "which way a send takes: straight, or by a flow",
        (
            "broker.links.backend broker.message broker.operations client.flows.io_requests client.native "
            "client.reporting pairing proxy"
        ),
        is_pure=True,
    ),
    Room("proxy.sending.arrived_messages", "messages of applications", "broker.message pairing", is_pure=True),
    Room(
        "proxy.sending.refusals",
        "why messages were not stored",
        "broker.operations client.native pairing",
        is_pure=True,
    ),
    Room(
        "proxy.sending.schedules",
        "requests to schedule and to cancel",
        "amqp broker.links broker.message client.flows pairing transport",
        is_pure=True,
    ),
    # Spark
    Room(
        "spark", "sessions and how jobs reach a namespace", "client connection_string own_files pairing spark transport"
    ),
    Room("spark.source", 'format "servicebus"', "amqp pairing spark storage transport"),
    Room("spark.drain", "a backlog brought home as a job", "ledger pairing spark syphon transport"),
    Room("spark.compaction", "segments to Parquet", "ledger pairing storage"),
    Room(
        "spark.transforms", "functions from DataFrame to DataFrame", "cost ledger spark.compaction units", is_pure=True
    ),
    Room("spark.jobs", "transforms meet data", "twinbus cost ledger own_files spark storage units"),
    Room("spark.report", "the page, alerts, counts of the service", "twinbus cost ledger plain_text spark units"),
    # people
    Room(
        "drill",
        "an outage on purpose, measured",
        ("amqp client control ledger own_files pairing plain_text syphon transport units"),
    ),
    Room("drill.measures", "events in, numbers and limits out", "units", is_pure=True),
    Room(
        "demo",
        "an outage on this machine, played",
        "twinbus client control cost spark",
    ),
    Room("testing", "namespaces for tests", "broker limit_names options"),
    Room(
        "console",
        "a web page for operators, live",
        (
            "twinbus board broker.limits broker.net cli.status.proxy_view cli.status.spool_view client control cost "
            "drill ledger messages own_files pairing plain_text syphon transport units"
        ),
    ),
    Room("console.access", "who is let in", is_pure=True),
    Room("console.advice", "what an operator is told", "client.inspection.freshness plain_text units", is_pure=True),
    Room("console.delta", "what of the state is new to a page", is_pure=True),
    Room("console.sections", "what the page shows, as rows", "board client.inspection cost", is_pure=True),
    Room("cli", "commands, and what people see", "*"),
    Room("twinbus", "public names", "client pairing"),
    Room("__main__", "`python -m twinbus`", "cli"),
    Room("aio", "public names for asyncio", "client.aio"),
)


def room_of(module: str) -> Room:
    """The room of a module, named without `twinbus.` (and `twinbus` itself)."""
    fitting = [room for room in ROOMS if is_below(module, room.name)]
    return max(fitting, key=lambda room: len(room.name))


def is_below(module: str, room: str) -> bool:
    return module == room or module.startswith(room + ".")


def table() -> str:
    """The table of rooms, in Markdown."""
    lines = ["| room | speaks of | may import | decides only |", "|---|---|---|---|"]
    for room in ROOMS:
        allowed = ", ".join("everything" if other == "*" else f"`{other}`" for other in room.may_import.split())
        lines.append(f"| `{room.name}` | {room.speaks_of} | {allowed or '–'} | {'yes' if room.is_pure else ''} |")
    return "\n".join(lines)


def page_with_table(page: str) -> str:
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(page_with_table(path.read_text(encoding="utf-8")), encoding="utf-8")
