"""What the shell blocks of the pages find when they are run: namespaces, a backlog, a quarantine, a ledger."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from doc_blocks import Block, logical_lines
from roles import emitted_rules
from tutorial import Terminal

from twinbus import Namespace, PairedServiceBusClient

ABOUT_A_PAIR = re.compile(r"^(?:timeout .* )?twinbus (?!serve|cost|pair --emit)", re.MULTILINE)
"""Commands that find something: namespaces, a backlog, a ledger."""
FOLLOW_S = 6
"""How long somebody watches who follows something."""
ENDLESS = re.compile(r"twinbus (.* --follow|syphon(?! quarantine)(?!.* --(until-empty|dry-run)))\b")
"""Commands that go on until somebody stops them."""
SIDES = ("primary", "secondary")
MALFORMED = 17
"""Messages that can never come home: the page about the syphon shows the one with this number."""


RIGHTS = ("Send", "Listen")
"""There is a key for each of them alone."""


class Pair(NamedTuple):
    primary: str
    secondary: str
    narrow: Mapping[str, Mapping[str, str]] = {}
    """By side and right, the connection strings that give this right and no other."""
    third: str = ""
    """A namespace beside the two; pages call its connection string `NEW`."""

    def strings(self, role: str | None) -> tuple[str, str]:
        """Those of a role, with exactly the keys that `twinbus pair --emit` has made for it; None: all rights."""
        if role is None:
            return self.primary, self.secondary
        rights = [dict(rule.split(":") for rule in emitted_rules(side))[f"twinbus-{role}"] for side in SIDES]
        primary, secondary = (self.narrow[side][right] for side, right in zip(SIDES, rights, strict=True))
        return primary, secondary


@contextmanager
def served_pair(folder: Path, empty: bool = False) -> Iterator[Pair]:
    """`contoso` and `backup`, and `local` beside them; with something in all places that the pages speak of.

    `empty`: with nothing but the queue `orders`.
    """
    (folder / "order.json").write_text('{"order": 42}')
    names = ("contoso", "backup", "local")
    command = [sys.executable, "-m", "twinbus", "serve", "--json", "--queue", "orders"]
    for name in names:
        command += ["--namespace", f"{name}:0"]
    for right in RIGHTS:
        command += ["--rule", f"only-{right.lower()}:{right}"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            ready = [json.loads(server.stdout.readline()) for _ in names]
            strings = [each["rule_connection_strings"] for each in ready[:2]]
            narrow = [{right: each[f"only-{right.lower()}"] for right in RIGHTS} for each in strings]
            both = dict(zip(SIDES, narrow, strict=True))
            pair = Pair(
                ready[0]["connection_string"], ready[1]["connection_string"], both, ready[2]["connection_string"]
            )
            if not empty:
                fill_primary(pair.primary)
                fill_backlog(pair, folder / "ledger")
            yield pair
        finally:
            server.terminate()


@contextmanager
def open_terminal(folder: Path, blocks: Sequence[Block]) -> Iterator[Terminal]:
    """A terminal in a folder; with a pair in its environment, if one of the blocks is about it."""
    terminal = Terminal(folder)
    try:
        terminal.type(f"export PATH='{Path(sys.executable).parent}:{os.environ['PATH']}'")
        if not any(ABOUT_A_PAIR.search(block.code) for block in blocks):
            yield terminal
            return
        if any("--data ./bus" in block.code and "twinbus backup" in block.code for block in blocks):
            (folder / "bus").symlink_to(".twinbus")  # what is copied there is what is served
        with served_pair(folder, empty=any(block.marks.get("stage") == "empty" for block in blocks)) as pair:
            terminal.act_as = lambda role: take_role(terminal, pair, role)
            yield terminal
    finally:
        terminal.close()


def take_role(terminal: Terminal, pair: Pair, role: str | None) -> None:
    """The keys of a role are in the environment of what is typed from now on."""
    primary, secondary = pair.strings(role)
    terminal.type(f"export TWINBUS_PRIMARY='{primary}' TWINBUS_SECONDARY='{secondary}' NEW='{pair.third}'")


def fill_primary(connection_string: str) -> None:
    """An order, one among the dead letters, a cart that is a session, and news for a subscription."""
    with Namespace.from_connection_string(connection_string).admin_client(attempt_s=15) as admin:
        admin.create_queue("carts", requires_session=True)
        admin.create_topic("news")
        admin.create_subscription("news", "paris")
    with ServiceBusClient.from_connection_string(connection_string) as client:
        orders = client.get_queue_sender("orders")
        orders.send_messages(ServiceBusMessage("spoiled"))
        with client.get_queue_receiver("orders") as receiver:
            for message in receiver.receive_messages(max_wait_time=15):
                receiver.dead_letter_message(message)
        orders.send_messages(ServiceBusMessage("41"))
        client.get_queue_sender("carts").send_messages(ServiceBusMessage("a book", session_id="cart-7"))
        client.get_topic_sender("news").send_messages(ServiceBusMessage("rain"))


def fill_backlog(pair: Pair, ledger: Path) -> None:
    """Three orders in the backlog, written down, and some messages that no paired client has sent."""
    bus = PairedServiceBusClient.from_connection_strings(pair.primary, pair.secondary, ledger=str(ledger))
    with bus, bus.get_queue_sender("orders") as sender:
        bus.force_failover("orders", stay=True)
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
    with (
        ServiceBusClient.from_connection_string(pair.secondary) as client,
        client.get_queue_sender("contoso/x-servicebus-transfer/0") as sender,
    ):
        sender.send_messages([ServiceBusMessage("not from us") for _ in range(MALFORMED)])


def is_for_spark(line: str) -> bool:
    """Whether a line starts Spark: those are run in the session that all tests share."""
    return line.startswith(("twinbus pipeline", "twinbus cost actual"))


def for_the_shell(block: Block) -> Block:
    """A block with only what this machine's shell is to run, on ports that are free, and servers that end."""
    lines = [
        line
        for line in block.code.splitlines()
        if not is_for_spark(line) and not line.startswith(("make ", "pip install"))
    ]
    return block._replace(code="".join(f"{_ending(line)}\n" for line in lines))


def _ending(line: str) -> str:
    """What would run for ever is stopped: a server as soon as it is ready, and it has to end well."""
    line = _patient(line)
    if ENDLESS.match(line):
        return f"timeout --signal INT {FOLLOW_S} {line} || [ $? = 124 ]"
    if line.startswith("twinbus syphon") and "--until-empty" in line:
        return f"{line} || [ $? = 3 ]"  # the backlog of the stage has messages that never come home
    if line.startswith("twinbus proxy"):
        return _until_ready(re.sub(r"--listen \S+", "--listen 127.0.0.1:0", line))
    if not line.startswith("twinbus serve"):
        return line
    ports = re.sub(r"(--namespace \S+?):\d+", r"\1:0", line)
    free = ports if "--namespace" in ports else f"{ports} --namespace served:0"
    if "--namespace contoso" in free and "--data" not in free:
        free += " --data apart"  # the stage serves a namespace of this name from the usual folder
    return _until_ready(free)


def _until_ready(line: str) -> str:
    until_ready = "until grep -q Endpoint= served.txt || ! kill -0 $!; do sleep 0.1; done"
    return f"rm -f served.txt; {line} > served.txt &\n{until_ready}; kill $!; wait $!; cat served.txt"


def _patient(line: str) -> str:
    """Messages that are there are received on a busy machine too; `--all` waits so long in any case, after the last."""
    if not line.startswith("twinbus receive") or "--wait" in line or "--peek" in line:
        return line
    wait_s = 6 if "--all" in line else 60
    return line.replace("twinbus receive", f"twinbus receive --wait {wait_s}s --timeout 30s", 1)


def commands_for_spark(blocks: list[Block]) -> list[str]:
    """Every line of these blocks that needs Spark, once."""
    return list(dict.fromkeys(line for block in blocks for line in logical_lines(block.code) if is_for_spark(line)))
