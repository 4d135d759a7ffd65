"""The plan of a drill: made without changing anything, and shown before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from twinbus.client.namespace import Namespace
from twinbus.client.options import Retry, SendAvailabilityPairedNamespaceOptions
from twinbus.drill.canaries import MARK
from twinbus.drill.entity_admin import DrilledEntity, EntityAdministration
from twinbus.drill.injection import Way, control_for, injection_for
from twinbus.drill.options import DrillOptions
from twinbus.errors import OptionsError
from twinbus.units import exact_duration


@dataclass(frozen=True, slots=True)
class DrillPlan:
    primary: Namespace
    secondary: Namespace
    name: str
    """The primary's, by which its backlog queues are called."""
    options: DrillOptions
    pairing: SendAvailabilityPairedNamespaceOptions
    target: DrilledEntity
    control: Path | None
    """The control socket of the primary; None: the entity's status is changed."""
    announcement: tuple[str, ...]
    """Line by line, for people."""

    @property
    def way(self) -> Way:
        return "status" if self.control is None else "control"


async def make_plan(primary: Namespace, secondary: Namespace, options: DrillOptions, control: Path | None) -> DrillPlan:
    """Reads, and changes nothing. Raises `OptionsError` or `TwinbusError` if the drill cannot be done."""
    name = options.primary_name or primary.name
    if name is None:
        raise OptionsError(f"{primary.address} does not tell its name: give --primary-name")
    pairing = _pairing(secondary, name, options)
    async with EntityAdministration(primary, options.timeout_s) as admin:
        target = await admin.find(options.entity.strip("/"))
        chosen = await control_for(primary, options, target, control)
        text = injection_for(chosen, admin, options, target).text
    lines = tuple(_announcement(primary, secondary, options, target, text))
    return DrillPlan(primary, secondary, name, options, pairing, target, chosen, lines)


def _pairing(secondary: Namespace, name: str, options: DrillOptions) -> SendAvailabilityPairedNamespaceOptions:
    """As the application has it; no syphon, because that one would move the messages of all entities."""
    return SendAvailabilityPairedNamespaceOptions(
        secondary,
        failover_interval=timedelta(seconds=options.failover_interval_s),
        ping_primary_interval=timedelta(seconds=options.ping_interval_s),
        attempt_timeout=timedelta(seconds=options.timeout_s),
        retry=Retry(attempts=options.attempts),
        backlog_queue_count=options.queue_count,
        create_backlog=options.creates,
        primary_name=name,
        entities=(options.entity,),
    )


def _announcement(
    primary: Namespace, secondary: Namespace, options: DrillOptions, target: DrilledEntity, text: str
) -> Iterator[str]:
    before, length, ttl = map(exact_duration, (options.before_s, options.outage_s, options.canary_ttl_s))
    yield f"Drill of {target.path}, a {target.kind} of {_place(primary)}; the backlog is on {_place(secondary)}."
    yield (
        f"  1. Canaries go to {target.path} through a paired client, {options.rate:g} a second. "
        f"They have the application property {MARK} and live for {ttl}."
    )
    if target.is_topic:
        yield "     The drill reads them from a subscription of its own; the others get copies, which expire."
    yield f"  2. After {before}, for {length}: {text}. This is so for everybody who sends to it."
    yield f"  3. It is put back, whatever happens. Pings notice within {exact_duration(options.ping_interval_s)}."
    bringer = f"A syphon for {target.path}" if options.brings_home else "The syphon that you run"
    yield f"  4. {bringer} brings home what lies in the backlog."
    yield f"  5. Canaries are counted and {_rest(options, target)}."


def _rest(options: DrillOptions, target: DrilledEntity) -> str:
    if options.leaves_canaries:
        return "stay where they are until they expire"
    if target.is_topic:
        return "go with their subscription"
    return "are taken away again" + ("" if target.has_sessions else ", as far as they lie in front")


def _place(namespace: Namespace) -> str:
    return namespace.address if namespace.name is None else f"{namespace.name} ({namespace.address})"
