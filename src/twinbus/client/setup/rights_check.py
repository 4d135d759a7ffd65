"""Which rights two credentials really have, by trying each: links are opened and closed, settings are read.

No message is sent or taken, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusClient

from twinbus.client.namespace import ATTEMPT_S, Namespace
from twinbus.client.sdk.abandonable_threads import leavable_pool, within
from twinbus.client.setup import findings
from twinbus.client.setup.administration import LINKS_AT_ONCE, admin_deadline, admin_failure
from twinbus.client.setup.roles import PairRight, PairRole, Place, RoleCheck, Trial
from twinbus.client.sync.links import LinkOpener
from twinbus.pairing.sending.failure import Failure, FailureKind


def check_role(
    role: PairRole,
    primary: Namespace,
    secondary: Namespace,
    entities: Sequence[str],
    backlog: Sequence[str],
    board: Sequence[str] = (),
    *,
    attempt_s: float = ATTEMPT_S,
) -> RoleCheck:
    """Try every right on these entities of the primary, these backlog queues and, if there is to be one, the board."""
    tester = _Tester(attempt_s)
    try:
        with leavable_pool(LINKS_AT_ONCE, "twinbus-rights") as pool:
            trials: list[Trial] = []
            for place, namespace, paths in (
                (Place.PRIMARY, primary, entities),
                (Place.BACKLOG, secondary, backlog),
                (Place.BOARD, secondary, board),
            ):
                client = namespace.sync_client(attempt_s)
                tries = [(path, right) for right in PairRight for path in paths]
                ask = partial(tester.trial, place, namespace, client)
                trials += pool.map(lambda one, ask=ask: ask(*one), tries)
    finally:
        tester.opener.hang_up()
    places = (Place.PRIMARY, Place.BACKLOG, *([Place.BOARD] if board else []))
    return RoleCheck(role, tuple(trials), places)


class _Tester:
    def __init__(self, attempt_s: float) -> None:
        self._attempt_s = attempt_s
        self.opener = LinkOpener()

    def trial(self, place: Place, namespace: Namespace, client: ServiceBusClient, path: str, right: PairRight) -> Trial:
        if right is PairRight.MANAGE:
            failure = self._manage(namespace, path)
        else:
            listens = right is PairRight.LISTEN
            failure = self.opener.try_link(client, path, listens=listens, deadline_s=self._attempt_s)
        if failure is None:
            return Trial(place, path, right, True)
        is_refused = failure.kind is FailureKind.UNAUTHORISED
        return Trial(place, path, right, False if is_refused else None, findings.brief(failure))

    def _manage(self, namespace: Namespace, path: str) -> Failure | None:
        """Whoever may not manage is refused before the entity is looked for."""
        admin_s = admin_deadline(self._attempt_s)
        with namespace.admin_client(admin_s) as admin:
            try:
                within(admin_s, partial(admin.get_queue, path))
            except (ResourceNotFoundError, AttributeError):  # none, or a topic, over which the SDK stumbles
                return None
            except Exception as error:
                return admin_failure(error)
        return None
