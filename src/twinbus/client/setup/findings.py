"""What pairing found, in words: one line each, with what to do about it and nothing secret in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from twinbus.client.setup.plan import Plan, host_of
from twinbus.pairing.sending.failure import Failure, FailureKind
from twinbus.units import rough_duration

EMIT = "twinbus pair --emit bicep|terraform|cli"
TEXT_LENGTH_MAX = 300

_ADVICE = {
    FailureKind.NO_ANSWER: "check its address and the network, and that it is up",
    FailureKind.UNREACHABLE: "check its address and the network, and that it is up",
    FailureKind.TIMED_OUT: "it is in trouble of its own: try again later",
    FailureKind.INTERNAL: "it is in trouble of its own: try again later",
    FailureKind.BUSY: "it is throttled: try again later",
    FailureKind.DISABLED: "set their status to Active",
    FailureKind.FULL: "make room or raise the quota",
    FailureKind.NOT_ALLOWED: "make them anew as backlog queues are made: without sessions, without forwarding",
    FailureKind.UNAUTHORISED: "check the credential, and give it Send on these queues",
}


# --- why there is no pair ------------------------------------------------------------------------------


def plan_problem(plan: Plan) -> str | None:
    """What is wrong with the plan itself; needs no answers."""
    if plan.primary_address == plan.secondary_address:
        return f"primary and secondary are the same namespace, {plan.primary_address}: pair two different ones"
    if plan.primary_name is None:
        return (
            f"the name of the primary cannot be derived from its address {plan.primary_address}: pass primary_name= "
            "(--primary-name), or put TwinbusNamespace=NAME into its connection string"
        )
    return None


def needs_manage(plan: Plan, failure: Failure) -> str:
    return (
        f"secondary {plan.secondary}: the credential has no Manage right, so backlog queues can be neither listed nor "
        f"created ({brief(failure)}): give it Manage, or have the queues created with `{EMIT}` and pass "
        "create_backlog=False (--no-create)"
    )


def bad_credential(plan: Plan, failure: Failure) -> str:
    return (
        f"secondary {plan.secondary} refuses the credential ({brief(failure)}): check the key or token; it needs "
        f"Manage to create backlog queues, or Send on queues that exist (`{EMIT}`, create_backlog=False)"
    )


def not_found_anywhere(plan: Plan, failure: Failure) -> str:
    """Existing queues were wanted, and there is none."""
    return (
        f"secondary {plan.secondary} has none of the {plan.queue_count} backlog queues {_names(plan, plan.paths)} "
        f"({brief(failure)}): have them created with `{EMIT}`, or pass create_backlog=True with a credential that has "
        "Manage"
    )


def nothing_usable(plan: Plan, failures: Mapping[int, Failure]) -> tuple[str, ...]:
    """One line for each reason why no backlog queue can be used."""
    groups = _by_reason(failures)
    if not plan.creates and len(groups) == 1 and groups[0][0].kind is FailureKind.NOT_FOUND:
        return (not_found_anywhere(plan, groups[0][0]),)
    return tuple(
        f"secondary {plan.secondary}: backlog {_queues(plan, indexes)} cannot be used: {reason}: {advice(failure)}"
        for failure, indexes in groups
        for reason in [brief(failure)]
    )


def cannot_listen(plan: Plan, failure: Failure) -> str:
    return (
        f"secondary {plan.secondary}: the syphon may not listen to backlog {_queues(plan, plan.paths)} "
        f"({brief(failure)}): give its credential Listen on them, or leave enable_syphon off here"
    )


# --- what is worth knowing -----------------------------------------------------------------------------


def shared_host(plan: Plan) -> str | None:
    host = host_of(plan.primary_address)
    if host != host_of(plan.secondary_address):
        return None
    return f"primary and secondary are on the same host, {host}: what stops one is likely to stop the other"


def unlisted(plan: Plan, failure: Failure) -> str:
    return (
        f"the queues of secondary {plan.secondary} could not be listed, so missing ones were not created "
        f"({brief(failure)})"
    )


def unreached(plan: Plan, failure: Failure) -> str:
    return (
        f"secondary {plan.secondary} cannot be reached ({brief(failure)}): its backlog queues are looked for again; "
        "until then messages that the primary does not take go to the spool"
    )


def board_unusable(plan: Plan, failure: Failure) -> str:
    return (
        f"the board {plan.board_path} on secondary {plan.secondary} cannot be used ({brief(failure)}): nobody "
        "sees there how this process is; create it with twinbus pair --board, and let the credential send to it"
    )


def missing(plan: Plan, failures: Mapping[int, Failure]) -> tuple[str, ...]:
    found = plan.queue_count - len(failures)
    return tuple(
        f"only {found} of {plan.queue_count} backlog queues are there on secondary {plan.secondary}: no "
        f"{_queues(plan, indexes)} ({brief(failure)})"
        for failure, indexes in _by_reason(failures)
    )


def unusable(plan: Plan, failures: Mapping[int, Failure]) -> tuple[str, ...]:
    return tuple(
        f"backlog {_queues(plan, indexes)} on secondary {plan.secondary} cannot be used now: {brief(failure)}"
        for failure, indexes in _by_reason(failures)
    )


def deaf(plan: Plan, failures: Mapping[int, Failure]) -> tuple[str, ...]:
    return tuple(
        f"the syphon cannot listen to backlog {_queues(plan, indexes)} on secondary {plan.secondary}: {brief(failure)}"
        for failure, indexes in _by_reason(failures)
    )


def detection_off(entity: str) -> str:
    return (
        f"{entity} has no duplicate detection: a message that comes home twice, or whose first send was in doubt, is "
        "delivered twice"
    )


def detection_short(entity: str, window_s: float, wanted_s: float) -> str:
    return (
        f"{entity} knows duplicates for {rough_duration(window_s)} only: an outage and the way home may take "
        f"{rough_duration(wanted_s)} or more; set DuplicateDetectionHistoryTimeWindow to that"
    )


def undeclared(plan: Plan, entity: str) -> str:
    return f"primary {plan.primary} has no queue or topic {entity!r}, though it is named in entities="


# --- wording -------------------------------------------------------------------------------------------


def brief(failure: Failure) -> str:
    """One line, not too long, whatever a server has written."""
    line = " ".join(str(failure).split())
    return line if len(line) <= TEXT_LENGTH_MAX else f"{line[: TEXT_LENGTH_MAX - 3]}..."


def advice(failure: Failure) -> str:
    return _ADVICE.get(failure.kind, "see what it says")


def _by_reason(failures: Mapping[int, Failure]) -> list[tuple[Failure, list[int]]]:
    """Queues that failed alike share a line; texts differ by their names only."""
    groups: dict[FailureKind, tuple[Failure, list[int]]] = {}
    for index in sorted(failures):
        groups.setdefault(failures[index].kind, (failures[index], []))[1].append(index)
    return list(groups.values())


def _queues(plan: Plan, indexes: Iterable[int]) -> str:
    chosen = sorted(indexes)
    return f"queue{'s' if len(chosen) > 1 else ''} {_names(plan, chosen)}"


def risky(plan: Plan, groups: Mapping[tuple[str, str], Iterable[int]]) -> Iterator[str]:
    """One line for each setting of queues that exist which can cost messages or sends."""
    for (setting, cost), indexes in groups.items():
        yield f"secondary {plan.secondary}: backlog {_queues(plan, indexes)}: {setting}: {cost}"


def _names(plan: Plan, indexes: Iterable[int]) -> str:
    """`contoso/x-servicebus-transfer/0..3,7`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    numbers = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs)
    return plan.paths[runs[0][0]].rpartition("/")[0] + "/" + numbers
