"""Breakages of the proxy (X1 to X5)."""

from __future__ import annotations

from mutant import Mutant

PROXY = (
    Mutant(
        "X1",
        "proxy/sending/refusals.py",
        "        case TwinbusError():\n            return RETRIED",
        "        case TwinbusError():\n            return NotAllowed.condition",
        "clients do not repeat a send that failed before failover",
        "test_each_error_has_its_condition",
    ),
    Mutant(
        "X1",
        "proxy/sending/refusals.py",
        "    condition = PARTLY_STORED if accepted else _condition_of(error)",
        "    condition = _condition_of(error)",
        "clients repeat a batch of which a part is stored",
        "test_of_a_batch_that_is_partly_stored_the_text_says_how_much_and_clients_do_not_retry",
    ),
    Mutant(
        "X1",
        "broker/net/amqp_server.py",
        "(ANONYMOUS, CBS, PLAIN) if takes_passwords else (ANONYMOUS, CBS)",
        "(ANONYMOUS, PLAIN) if takes_passwords else (ANONYMOUS,)",
        "the .NET client finds no mechanism that it knows",
        "test_the_net_client_logs_in_sends_receives_and_completes",
    ),
    Mutant(
        "X2",
        "proxy/relay/upstream_port.py",
        "    return ConditionError(LINK_LOST, str(error)) if error.condition in _NOT_IN_A_DETACH else error",
        "    return error",
        "receivers of some clients never come back after a detach of the primary",
        "test_a_detach_after_which_clients_would_not_come_back_is_told_as_a_loss",
    ),
    Mutant(
        "X2",
        "proxy/relay/relay.py",
        "                result = failure_response(request, refusal_of(result, TIMED_OUT))",
        "                result = failure_response(request, refusal_of(result, LINK_LOST))",
        "a request while the primary is away is answered with a condition of links",
        "test_a_request_that_finds_no_primary_is_answered_with_a_time_out",
    ),
    Mutant(
        "X2",
        "proxy/relay/relay.py",
        "            self._notify(EncodedDelivery(self._number, transfer.payload, token))",
        "            self._notify(EncodedDelivery(self._number, transfer.payload, bytes(16)))",
        "deliveries lose their lock tokens",
        "test_deliveries_keep_their_bytes_and_their_tags",
    ),
    Mutant(
        "X2",
        "proxy/relay/relay.py",
        "                self._requested.responded(path, request, result)",
        "                pass",
        "deferred messages that are completed are missing in the ledger",
        "test_deferred_messages_that_are_settled_by_request_are_in_the_ledger",
    ),
    Mutant(
        "X2",
        "proxy/relay/transactions.py",
        "            on_reply(Done() if is_empty or not commits else Refused(TransactionRolledBack(_LOST)))",
        "            on_reply(Done())",
        "a transaction is committed though the primary is away",
        "test_while_the_primary_is_down_transactions_are_refused_and_the_connection_stays",
    ),
    Mutant(
        "X2",
        "proxy/relay/relay.py",
        "            settling.unanswered(failure)",
        "            pass",
        "a transaction never hears of a settlement that the primary did not answer",
        "test_a_transaction_with_a_settlement_that_is_never_answered_is_rolled_back",
    ),
    Mutant(
        "X3",
        "proxy/administration/admin_documents.py",
        "    return replace(body, [*changes, *[(key.place, HIDDEN_KEY) for key in places.keys]])",
        "    return replace(body, changes)",
        "keys of the primary's entities leave the proxy",
        "test_keys_of_the_primary_do_not_leave_the_proxy",
    ),
    Mutant(
        "X3",
        "broker/links/link_roles.py",
        "        return [(path, None)]",
        '        return [("", None)]',
        "a token for one node is asked to be one for the whole namespace",
        "test_a_token_for_management_alone_is_enough_for_requests_and_for_nothing_else",
    ),
    Mutant(
        "X5",
        "proxy/sending/pair_client.py",
        "        self._is_stopping = True",
        "        self._is_stopping = False",
        "a proxy that stops takes what it will not answer",
        "test_a_stop_answers_what_is_under_way_and_refuses_what_comes",
    ),
    Mutant(
        "X5",
        "proxy/sending/routing.py",
        "self._take([self._new_send(transfer.arrivals, at, on_replies, transfer) for transfer in transfers], at)",
        "on_replies(transfers, DONE)\n"
        "        self._take([self._new_send(each.arrivals, at, lambda *_: None, each) for each in transfers], at)",
        "a proxy accepts what it has not stored yet",
        "test_killing_the_proxy_while_messages_are_in_its_spool_loses_nothing",
    ),
)
