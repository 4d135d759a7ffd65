"""What is ordered from an administrator, and how the tools' languages are filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from twinbus.board.queue import board_path
from twinbus.pairing.backlog.backlog_queues import BACKLOG_SETTINGS, backlog_path

SENDER_ROLE_ID = "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39"
"""Azure Service Bus Data Sender, everywhere."""
RECEIVER_ROLE_ID = "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0"
"""Azure Service Bus Data Receiver."""

ROLES = """\
Four roles, none with more rights than it needs:
  manager  Manage on the secondary: creates backlog queues. Whoever applies this file has done that.
  sender   Send on the primary's entities and on the backlog queues: applications that send.
  syphon   Listen on the backlog queues, Send on the primary's entities: whoever brings the messages home.
  monitor  Listen on the backlog queues and on the primary's entities: whoever looks at the pair, as twinbus status.
With the board, a queue on which processes say how they are doing: sender and syphon send to it, syphon and monitor
listen there. As a key is for a whole namespace, the syphon's may then send to the backlog queues too.
Each is either a key (an authorization rule) or an identity (a role assignment); a key is for a whole namespace."""

GRANTS = {
    "sender on backlog": "Sender",
    "syphon on backlog": "Receiver",
    "monitor on backlog": "Receiver",
    "sender on board": "Sender",
    "syphon sends to board": "Sender",
    "syphon reads board": "Receiver",
    "monitor on board": "Receiver",
    "sender on primary": "Sender",
    "syphon on primary": "Sender",
    "monitor on primary": "Receiver",
}
"""The role assignments of identities, where they are identities and not keys."""


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    primary: str
    """The primary's name: the queues are called by it."""
    secondary: str | None
    """The secondary's name; None: whoever uses the text fills it in."""
    queue_count: int
    has_board: bool = False
    """Whether the board is made, too, unless whoever uses the text says otherwise."""


class ToolTemplate(Template):
    """A text with `%{gaps}`: the tools' own dollars and braces stay as they are."""

    delimiter = "%"


def fill(form: ToolTemplate, order: ProvisioningRequest, comment: str, **gaps: str) -> str:
    """The form with everything in it that an order says, and with `gaps`: what is said in the language of the tool.

    `comment` begins a line of prose in that language.
    """
    return form.substitute(
        gaps,
        primary=order.primary,
        count=order.queue_count,
        first=backlog_path(order.primary, 0),
        last=backlog_path(order.primary, order.queue_count - 1),
        board=board_path(order.primary),
        roles="\n".join(f"{comment} {line}".rstrip() for line in ROLES.splitlines()),
    )


def grants(place: str, form: ToolTemplate) -> str:
    """What identities may do at a place, in the language of a tool: `name`, `who`, `Who` and `right` are its gaps."""
    texts = []
    for words, right in GRANTS.items():
        who, *others = words.split()
        if others[-1] == place:
            name = {"name": words.replace(" ", "_"), "camelName": who + "".join(map(str.title, others))}
            texts.append(form.substitute(name, who=who, Who=who.title(), WHO=who.upper(), right=right))
    return "\n".join(texts)


def settings_lines(
    names: Mapping[str, str],
    line: str,
    quote: str = '"',
    settings: Mapping[str, int | str | bool] = BACKLOG_SETTINGS,
) -> list[str]:
    """One line for each setting of a queue, under the name it has in that language."""
    return [line.format(name=names[setting], value=_literal(value, quote)) for setting, value in settings.items()]


def _literal(value: int | str | bool, quote: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else f"{quote}{value}{quote}"
