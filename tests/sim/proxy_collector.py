"""A patient application: when all is over, it receives everything that is left, by way of the proxy."""

from __future__ import annotations

from sim.proxy_application import PLAIN_QUEUES, SESSION_QUEUE, Application
from sim.proxy_receiver import AppReceiver
from sim.proxy_requests import AppRequests
from twinbus.amqp.codec.outcomes import ACCEPTED
from twinbus.broker.core.registry import DEAD_LETTER_SUFFIX
from twinbus.broker.operations import Complete, ReceiveMode
from twinbus.broker.store.api import MessageRow, MessageState

LOOK_S = 0.5
PATIENCE_S = 3.0
"""It leaves a session from which nothing has come for so long."""


class Collector(Application):
    def left(self) -> list[MessageRow]:
        """What is still there; deferred messages of sessions stay, nobody asks for them."""
        paths = self.accounts.disk.paths
        rows = self.accounts.disk.all_rows()
        return [row for row in rows if row.state is not MessageState.DEFERRED or paths[row.entity_id] in PLAIN_QUEUES]

    def _act_later(self) -> None:
        self.loop.call_later(LOOK_S, self._act)

    def _act(self) -> None:
        if self.is_open and self.left():
            self._attach_all()
            for link in list(self.links):
                if isinstance(link, AppReceiver) and link.is_attached:
                    self._take_all(link)
                elif isinstance(link, AppRequests):
                    self._ask_for_deferred(link)
            self.flush()
        self._act_later()

    def _attach_all(self) -> None:
        taken = {(type(link), link.path) for link in self.links}
        for path in (*PLAIN_QUEUES, SESSION_QUEUE):
            for source in (path, path + DEAD_LETTER_SUFFIX):
                if (AppReceiver, source) not in taken:
                    session_id = None if source == SESSION_QUEUE else False
                    mode = ReceiveMode.PEEK_LOCK
                    self.links.append(AppReceiver(self, self._session(), source, mode, session_id))
            if path in PLAIN_QUEUES and (AppRequests, path) not in taken:
                self.links.append(AppRequests(self, self._session(), path))

    def _take_all(self, receiver: AppReceiver) -> None:
        for delivery_id in list(receiver.held):
            receiver.settle([delivery_id], ACCEPTED, waits=True)
            receiver.asked_at = self.loop.now
        if not receiver.link.credit:
            receiver.grant(20)
        if receiver.wants_session and not receiver.settling and self.loop.now > receiver.asked_at + PATIENCE_S:
            receiver.detach()

    def _ask_for_deferred(self, node: AppRequests) -> None:
        for delivery in [each for each in self.lent if each.path == node.path]:
            node.settle_lent(delivery, Complete())
        paths = self.accounts.disk.paths
        for row in self.left():
            if row.state is MessageState.DEFERRED and paths[row.entity_id] == node.path and not node.waiting:
                node.receive_deferred(row.sequence)
