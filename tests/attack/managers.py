"""What somebody tries who may do everything: by mistake, most likely."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from urllib.parse import quote

from catalogue import TOPIC, Asker, again, attack, numbers, one, opened, request, until_hung_up, with_key
from raw_peer import Line, RawPeer, dial

from twinbus.connection_string import ConnectionString

SUBSCRIPTION = f"{TOPIC}/Subscriptions/s0"
IN_LIST = "p IN (" + ",".join(f"'{number}'" for number in range(170)) + ")"
DEEP = "(" * 100 + "1=1" + ")" * 100
LIKES = "p LIKE '" + "%a" * 400 + "'"


def token(connection_string: str, audience: str) -> str:
    said = ConnectionString.parse(connection_string)
    resource, end = quote(audience, safe=""), str(int(time.time()) + 3600)
    signed = hmac.new(said.key.encode(), f"{resource}\n{end}".encode(), hashlib.sha256).digest()
    signature = quote(base64.b64encode(signed), safe="")
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={end}&skn={said.key_name}"


@attack(
    "makes rules through `$management` as fast as it can: LIKE, IN, deep parentheses", right="Manage", subscriptions=1
)
def rules_in_a_loop(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(with_key(connection_string))
            asker = Asker(peer, SUBSCRIPTION)
            for number in numbers(until):
                rule = {"sql-filter": {"expression": (IN_LIST, DEEP, LIKES)[number % 3]}}
                asker.ask("add-rule", {"rule-name": f"{number}", "rule-description": rule})
                peer.read()


@attack("lists rules, as fast as it can", right="Manage", subscriptions=1)
def lists_rules(connection_string: str, until: float) -> None:
    for _ in again(until):
        with until_hung_up() as stack:
            peer = stack.enter_context(with_key(connection_string))
            asker = Asker(peer, SUBSCRIPTION)
            rule = {"sql-filter": {"expression": IN_LIST}}
            for number in range(1_000):
                asker.ask("add-rule", {"rule-name": f"{number}", "rule-description": rule})
                peer.read()
            for _ in numbers(until):
                asker.ask("enumerate-rules", {"skip": 0, "top": 1_000})
                peer.read()


@attack("puts good tokens for one resource after the other, as fast as it can", right="Manage")
def tokens_in_a_loop(connection_string: str, until: float) -> None:
    tokens = [
        request("put-token", {"name": f"sb://x/q{number}", "type": "x"}, signed, "from 1")
        for number in range(2_000)
        for signed in (token(connection_string, f"sb://x/q{number}"),)
    ]
    for _ in again(until):
        with until_hung_up() as stack:
            peer = opened(stack.enter_context(RawPeer(connection_string)))
            peer.attach_sender(0, "$cbs")
            peer.attach_receiver(1, "$cbs")
            for number in numbers(until):
                peer.say(one(0, number, settled=True), payload=tokens[number % len(tokens)])
                peer.read()


@attack("makes queues with names of 260 characters and lists them, as fast as it can", right="Manage")
def queues_in_a_loop(connection_string: str, until: float) -> None:
    signed = token(connection_string, "http://x/")
    queue = (
        b'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription'
        b' xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"/></content></entry>'
    )
    for _ in again(until):
        with until_hung_up() as stack:
            line = stack.enter_context(dial(connection_string))
            for number in numbers(until):
                ask(line, "PUT", f"/{number:0260}", signed, queue)
                ask(line, "GET", "/$Resources/queues?$top=100", signed, b"")


@attack("sends XML that would grow (entities in entities), is deep, or has 300,000 elements", right="Manage")
def xml_bombs(connection_string: str, until: float) -> None:
    signed = token(connection_string, "http://x/")
    entities = "".join(f'<!ENTITY e{level + 1} "{f"&e{level};" * 10}">' for level in range(9))
    bombs = [
        f'<!DOCTYPE x [<!ENTITY e0 "x">{entities}]><x>&e9;</x>'.encode(),
        b"<x>" * 300_000,
        b"<x>" + b"<y/>" * 240_000 + b"</x>",
        b"<x " + b" ".join(b'a%d="x"' % number for number in range(80_000)) + b"/>",
        b"<x>" + b"&#65;" * 190_000 + b"</x>",
    ]
    for number in numbers(until):
        with until_hung_up() as stack:
            line = stack.enter_context(dial(connection_string))
            ask(line, "PUT", "/bomb", signed, bombs[number % len(bombs)])


def ask(line: Line, method: str, path: str, signed: str, body: bytes) -> None:
    """One request, and wait for the answer."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {signed}\r\nContent-Length: {len(body)}\r\n\r\n"
    line.sendall(head.encode() + body)
    heard = b""
    while b"\r\n\r\n" not in heard:
        heard += _more(line)
    top, _, rest = heard.partition(b"\r\n\r\n")
    lengths = [field for field in top.lower().split(b"\r\n") if field.startswith(b"content-length:")]
    missing = int(lengths[0].split(b":")[1]) - len(rest) if lengths else 0
    while missing > 0:
        missing -= len(_more(line))


def _more(line: Line) -> bytes:
    data = line.recv(1 << 20)
    if not data:
        raise ConnectionError("the server hung up")
    return data
