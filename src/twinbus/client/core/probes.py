"""How a paired client asks whether what is down is back: the primary by pings or links (P7), the secondary by links."""

from __future__ import annotations

from twinbus.client.flows.io_requests import Failed, Flow, OpenBacklog, Probe, Stored
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.entity import Entity
from twinbus.pairing.events import LinkOpened, PingFailed, PingSucceeded
from twinbus.pairing.pair import Pair
from twinbus.pairing.secondary import is_about_the_secondary
from twinbus.pairing.sending.error_class import ErrorClass, SendKind, classify
from twinbus.pairing.sending.failure import FailureKind
from twinbus.pairing.sending.receipt import NamespaceSide

WORKERS_MAX = 16
"""Pings at a time: a primary that answers nobody takes up a worker for a whole attempt."""


def ping(pair: Pair, entity: Entity) -> Flow[None]:
    """One ping, if one is still due."""
    if entity.side is not NamespaceSide.BACKLOG:
        return
    epoch = entity.epoch
    probe = pair.probe
    pair.order(entity, ReportEvent("ping_sent", f"by {probe}"))
    answer = yield Probe(entity.path, pair.rules.attempt_s, sends_ping=probe == "ping")
    if isinstance(answer, Stored):
        event = PingSucceeded if probe == "ping" else LinkOpened
        pair.feed(entity, event(answer.at, epoch, answer.chance))
    elif isinstance(answer, Failed):
        pair.feed(entity, PingFailed(answer.at, epoch, str(answer.failure), answer.chance))
        pair.met_primary(answer.at, answer.failure)


def try_secondary(pair: Pair, at: float) -> Flow[None]:
    """One trial whether the secondary can be connected to, if one is due; `at`: now."""
    queue, timeout_s = pair.begin_trial(at)
    if queue is None:
        return
    generation = pair.secondary.generation
    try:
        answer = yield OpenBacklog(queue, timeout_s)
    except BaseException:  # cut short: whoever waits next has another one made
        pair.secondary.is_trying = False
        raise
    if not isinstance(answer, Failed):
        pair.trial_connected(answer.at)
    elif is_about_the_secondary(answer.failure):
        pair.trial_failed(answer.at, generation, answer.failure, answer.chance)
    else:
        pair.trial_connected(answer.at)  # somebody answered, if only about this queue
        is_fair = answer.failure.kind is not FailureKind.NO_ANSWER  # a queue has a whole attempt to answer
        if is_fair and classify(answer.failure, SendKind.BACKLOG) is ErrorClass.DOWN:
            pair.queue_failed(queue, answer.at, answer.failure)
