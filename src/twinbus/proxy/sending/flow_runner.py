"""Does what flows of the proxy ask for, each flow on a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import assert_never

from twinbus.client.aio.pair_runner import PairRunner
from twinbus.client.core import answers
from twinbus.client.flows.io_requests import (
    Answer,
    Ask,
    EncodeBatches,
    OpenBacklog,
    Probe,
    Sleep,
    ToBacklog,
    ToPrimary,
    ToSpool,
    WaitTurn,
)
from twinbus.client.flows.ordered_sends import sending_of
from twinbus.client.native.failures import for_caller
from twinbus.client.native.send_window import SendWindow
from twinbus.client.native.transport import NativeTransport
from twinbus.client.sdk.failures import LinkFailed
from twinbus.pairing.entity import Entity
from twinbus.pairing.sending.encoded_messages import encode_batch
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.pairing.sending.receipt import SendReceipt, receipt_of
from twinbus.proxy.sending.arrived_messages import ArrivedMessages
from twinbus.proxy.sending.routing import DirectSend, EntitySends
from twinbus.proxy.sending.schedules import SCHEDULE, ScheduleRequest, sequences_in

Attempt = Callable[[float], Awaitable[Answer]]
"""One attempt at the primary, within this time."""


class FlowRunner:
    def __init__(self, runner: PairRunner, transport: NativeTransport) -> None:
        self._runner = runner
        self._transport = transport

    async def store(self, send: DirectSend, failure: Failure | None, epoch: int) -> SendReceipt:
        """Store what an application sent; raises what its flow raises.

        `failure`: of an attempt that was made already, in this epoch.
        """
        sends, first = send.sends, None
        if failure is not None:
            first = self._failed(failure), epoch
            self._runner.warm_link.expect_detour(sends.choice)
        request = ArrivedMessages(send.arrivals, sends.entity.path)
        return await self._run(request, sends, send.at, first, partial(self._perform, send, request))

    async def schedule(self, sends: EntitySends, asked: ScheduleRequest) -> SendReceipt:
        """The same for messages that are to be scheduled by request."""
        entity = sends.entity
        request = ArrivedMessages(asked.arrivals, entity.path, is_scheduled=True)
        act = partial(self._perform_any, request, partial(self._ask_primary, entity, asked))
        return await self._run(request, sends, monotonic(), None, act)

    async def _run(
        self,
        request: ArrivedMessages,
        sends: EntitySends,
        started_at: float,
        first: tuple[Answer, int] | None,
        perform: Callable[[Ask], Awaitable[Answer]],
    ) -> SendReceipt:
        runner, recorder = self._runner, self._runner.state.recorder
        sending = sending_of(request, runner.pair, sends.entity, sends.choice, started_at, None)
        receipt: SendReceipt | None = None
        try:
            receipt = await runner.run(sending.run(first), perform)
            return receipt
        except BaseException as error:
            receipt = receipt_of(error)
            raise
        finally:
            if receipt is not None and recorder is not None:
                recorder.sent(receipt, request)
            for ticket in sending.tickets:
                runner.forget_turn(ticket)

    # --- asks ---

    async def _perform(self, send: DirectSend, request: ArrivedMessages, ask: Ask) -> Answer:
        ask = send.sends.asked(send, ask, monotonic())
        answer = await self._perform_any(request, partial(self._to_primary, send.sends, request), ask)
        send.sends.answered(send, ask, answer, monotonic())
        return answer

    async def _perform_any(self, request: ArrivedMessages, attempt: Attempt, ask: Ask) -> Answer:
        match ask:
            case ToPrimary(timeout_s):
                return self._runner.woke() if self._runner.is_closing else await attempt(timeout_s)
            case EncodeBatches():
                return answers.packed(request.batches(self._runner.pool.batch_bytes))
            case ToBacklog():
                return await self._runner.to_backlog(ask)
            case ToSpool():
                return await self._runner.to_spool(request.path, ask)
            case Sleep() | WaitTurn():
                return await self._runner.wait(ask)
            case Probe() | OpenBacklog():
                raise AssertionError(f"a send never asks for {ask}")
            case _:
                assert_never(ask)

    def _failed(self, failure: Failure) -> Answer:
        if self._runner.is_closing:
            return answers.woke(is_closing=True, failure=failure)
        return answers.failed(failure)

    # --- the primary ---

    async def _to_primary(self, sends: EntitySends, request: ArrivedMessages, timeout_s: float) -> Answer:
        self._runner.state.check_side("primary")
        entity = sends.entity
        epoch = entity.epoch
        try:
            window = sends.usable_link(epoch)
            if window is None:
                window = await self._transport.primary.get(entity.path, timeout_s)
                sends.use_link(window, epoch, self._runner.pool.batch_bytes)
            await self._store(window, sends, request)
        except LinkFailed as problem:
            self._runner.warm_link.expect_detour(sends.choice)
            return self._failed(problem.failure)
        return answers.stored()

    async def _store(self, window: SendWindow, sends: EntitySends, request: ArrivedMessages) -> None:
        """Store all messages, in one transfer if they fit, else in several; raises `LinkFailed`."""
        links, parts = self._transport.primary, sends.split(window, request.arrivals)
        if parts is None:
            text = f"a message of {max(request.sizes)} bytes is larger than {sends.entity.path} takes"
            raise LinkFailed(for_caller(Failure(FailureKind.TOO_LARGE, text, "amqp:link:message-size-exceeded")))
        transfers = [encode_batch([arrival.payload for arrival in part]) for part in parts]
        if len(transfers) == 1:
            await links.store(window, *transfers[0])
            return
        done = await asyncio.gather(*[links.store(window, *each) for each in transfers], return_exceptions=True)
        failed = [result for result in done if isinstance(result, LinkFailed)]
        if failed:  # sent again as a whole, so what is stored of it may be stored twice
            is_stored = len(failed) < len(done)
            failure = failed[0].failure
            raise LinkFailed(replace(failure, in_doubt=failure.in_doubt or is_stored))

    async def _ask_primary(self, entity: Entity, asked: ScheduleRequest, timeout_s: float) -> Answer:
        self._runner.state.check_side("primary")
        try:
            response = await self._transport.primary.request(
                entity.path, SCHEDULE, asked.body, asked.properties, timeout_s
            )
        except LinkFailed as problem:
            return self._failed(problem.failure)
        return answers.stored(sequences_in(response))
