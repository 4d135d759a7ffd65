"""Options of a proxy: how applications reach it, and the pair that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinbus.client.options import SendAvailabilityPairedNamespaceOptions
from twinbus.options import EndpointOptions

if TYPE_CHECKING:
    from twinbus.client.namespace import Namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions(EndpointOptions):
    """How to serve one proxy."""

    name: str = "proxy"
    """What its folder in `data`, its connection string and `twinbus status` call it."""
    primary: Namespace
    """The namespace that applications mean when they talk to the proxy."""
    pairing: SendAvailabilityPairedNamespaceOptions
    """The secondary, and when messages go there."""

    def _problems(self) -> list[str]:
        # Not super(): a dataclass with slots is made twice, and super() would be about the first one.
        return [*EndpointOptions._problems(self), *_pair_problems(self.primary, self.pairing)]


def _pair_problems(primary: object, pairing: object) -> Iterator[str]:
    if not hasattr(primary, "address"):  # by its address: the class would bring the whole SDK along
        yield f"primary must be a Namespace, got {type(primary).__name__}"
    elif not isinstance(pairing, SendAvailabilityPairedNamespaceOptions):
        yield f"pairing must be SendAvailabilityPairedNamespaceOptions, got {type(pairing).__name__}"
    elif primary.address == pairing.secondary.address:
        yield f"primary and secondary are the same namespace, {primary.address}: pair two different ones"
