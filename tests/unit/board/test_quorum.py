"""Findings of other hosts that may be acted on (X6): only signed, fresh ones of a quorum, however much is lied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from board_scene import THERE_S, BoardInMemory, failed_over, report
from hypothesis import given
from hypothesis import strategies as st

from twinbus import Namespace, SendAvailabilityPairedNamespaceOptions, ShareFailover
from twinbus.board.board_peek import PostedReport
from twinbus.board.quorum import FRESH_S, INSTANCES_MAX, REPLAY_S, SharedFindings, sign
from twinbus.board.report import EntityFinding, ProcessPhase, ProcessReport, ReportedState, encode_report
from twinbus.cli.arguments.pairing_arguments import DECLARED
from twinbus.errors import OptionsError
from twinbus.pairing.effects import ReportEvent
from twinbus.pairing.events import OthersFailedOver
from twinbus.pairing.failover import FailedOver, Healthy, Suspect, step
from twinbus.pairing.rules import Rules

PATH = "contoso/x-twinbus-board"
KEYS = {host: f"the secret of {host}, long enough".encode() for host in ("us", "a", "b", "c")}
HERE_S = 77.0
"""What our monotonic clock shows when a test begins."""


class SharedBoard:
    """A board in memory, on which hosts post signed reports; `skew_s`: how wrong what a host says of the time is."""

    def __init__(self, quorum: int = 2) -> None:
        self.board = BoardInMemory()
        self.findings = SharedFindings(PATH, KEYS, "us", quorum)
        self.numbers: dict[str, int] = {}

    def post(self, host: str, at: float, *, signer: str | None = None, skew_s: float = 0.0, **facts: Any) -> None:
        number = self.numbers[host] = self.numbers.get(host, 0) + 1
        there_ms = int((THERE_S + at + skew_s) * 1000)
        said = report(facts.pop("instance", f"{host}-1"), number, **{"host": host, "there_ms": there_ms} | facts)
        self.put(said, at, KEYS.get(signer or host, b"x"))

    def put(self, said: ProcessReport, at: float, key: bytes | None) -> None:
        body = encode_report(said)
        self.board.post(body, at)
        if key is not None:
            self.board.posts[-1] = self.board.posts[-1]._replace(signature=sign(key, PATH, body))

    def post_own(self, at: float, left_at: float) -> None:
        self.post("us", at)
        assert self.findings.sign(self.board.posts[-1].body, left_at) == self.board.posts[-1].signature

    def copy(self, number: int, at: float) -> None:
        """Somebody posts a message again that he has read."""
        old = self.board.posts[number]
        again = PostedReport(len(self.board.posts) + 1, int((THERE_S + at) * 1000), old.body, old.size, old.signature)
        self.board.posts.append(again)

    def confirmed(self, at: float) -> dict[str, tuple[str, ...]]:
        """As we find it out: we post, and look a moment later."""
        self.post_own(at, HERE_S + at - 0.1)
        self.findings.add(self.board.look(), HERE_S + at + 0.1)
        return self.findings.confirmed(HERE_S + at + 0.1)


OVER: dict[str, Any] = {"entities": (failed_over(),)}


def test_a_quorum_of_other_hosts_confirms_an_entity() -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    shared.post("b", 1, **OVER)
    assert shared.confirmed(2) == {"orders": ("a", "b")}


@pytest.mark.parametrize("host", ["a", "us"])
def test_one_host_moves_nobody_however_many_of_its_processes_say_so_nor_do_we_ourselves(host: str) -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    for number in range(3):
        shared.post(host, 1, instance=f"p{number}", **OVER)
    assert shared.confirmed(2) == {}


@pytest.mark.parametrize(
    "lie",
    [
        {"signer": "c"},
        {"signer": "nobody"},
        {"skew_s": -REPLAY_S - 5},
        {"skew_s": 3_600.0},
        {"there_ms": None},
        {"phase": ProcessPhase.CLOSED},
        {"entities": (EntityFinding(entity="orders", state=ReportedState.SUSPECT),)},
    ],
)
def test_a_report_that_is_not_what_it_should_be_does_not_count(lie: dict[str, Any]) -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    shared.post("b", 0, **OVER | lie)
    assert shared.confirmed(2) == {}


def test_an_unsigned_report_and_one_of_another_board_do_not_count() -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    said = report("b-1", host="b", there_ms=int(THERE_S * 1000), **OVER)
    shared.put(said, 0, None)
    shared.board.post(encode_report(said), 0)
    other = sign(KEYS["b"], "fabrikam/x-twinbus-board", encode_report(said))
    shared.board.posts[-1] = shared.board.posts[-1]._replace(signature=other)
    assert shared.confirmed(2) == {}


def test_a_report_does_not_count_when_it_is_old_even_if_nothing_newer_proves_it_but_our_own() -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    shared.post("b", 0, **OVER)
    assert shared.confirmed(FRESH_S + 1) == {}


def test_a_copy_that_somebody_posts_later_does_not_count() -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    shared.post("b", 0, **OVER)
    for number in (0, 1):
        shared.copy(number, 500)
        shared.board.posts[number] = shared.board.posts[number]._replace(body=b"")  # over, and never seen by us
    assert shared.confirmed(501) == {}


def test_before_our_own_report_was_seen_nothing_counts() -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    shared.post("b", 0, **OVER)
    shared.findings.add(shared.board.look(), HERE_S + 1)
    assert shared.findings.confirmed(HERE_S + 1) == {}


def test_old_reports_do_not_count_while_our_own_is_accepted_and_not_shown_yet() -> None:
    """A service in trouble takes up to 15 minutes to show what it has accepted."""
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    shared.post("b", 0, **OVER)
    shown = shared.board.look()
    shared.post_own(600, HERE_S + 599.9)
    shared.findings.add(shown, HERE_S + 600.1)
    assert shared.findings.confirmed(HERE_S + 600.1) == {}
    shared.findings.add(shared.board.look(), HERE_S + 601)
    assert shared.findings.confirmed(HERE_S + 601) == {}


def test_a_copy_of_our_own_report_changes_no_time() -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    shared.post("b", 0, **OVER)
    shared.post_own(1, HERE_S + 0.9)
    shared.copy(2, 400)
    shared.findings.add(shared.board.look()._replace(posts=tuple(shared.board.posts[:3])), HERE_S + 1.1)
    shared.findings.add(shared.board.look()._replace(posts=tuple(shared.board.posts[3:])), HERE_S + 1.2)
    assert shared.findings.confirmed(HERE_S + 1.2) == {"orders": ("a", "b")}


def test_after_a_clock_was_set_back_our_reports_say_how_late_it_is_there() -> None:
    shared = SharedBoard()
    shared.confirmed(2)
    shared.post_own(10, HERE_S + 99.9)  # so it is a minute and a half earlier there
    shared.findings.add(shared.board.look(), HERE_S + 100.1)
    there_ms = shared.findings.there_ms(HERE_S + 100.1)
    assert there_ms is not None
    assert abs(there_ms / 1000 - (THERE_S + 10)) < 1


def test_a_host_with_many_instances_pushes_out_only_its_own() -> None:
    shared = SharedBoard()
    shared.post("a", 0, **OVER)
    shared.post("b", 0, **OVER)
    for number in range(INSTANCES_MAX + 1):
        shared.post("c", 1, instance=f"c-{number}")
    assert shared.confirmed(2) == {"orders": ("a", "b")}
    kept = [len(each) for each in shared.findings._latest.values()]
    assert kept == [1, 1, INSTANCES_MAX // 3]


def test_a_confirmed_entity_fails_over_at_once_if_it_is_suspect_here_and_only_then() -> None:
    rules = Rules(failover_interval_s=60.0)
    event = OthersFailedOver(110.0, 0, ("a", "b"))
    after, effects = step(Suspect(0, 100.0, "refused"), event, rules)
    assert isinstance(after, FailedOver)
    assert after.reason == "refused (failed over elsewhere too: a, b)"
    assert any(isinstance(each, ReportEvent) and each.name == "failed_over" for each in effects)
    assert step(Healthy(), event, rules) == (Healthy(), ())
    over = FailedOver(0, 100.0, "refused")
    assert step(over, event, rules) == (over, ())


def test_what_is_signed_is_all_that_is_said() -> None:
    said = encode_report(report("b-1", host="b", **OVER))
    assert sign(KEYS["b"], PATH, said) == sign(KEYS["b"], PATH.upper(), said), "paths differ not by case alone"
    changed = encode_report(msgspec.structs.replace(report("b-1", host="b", **OVER), number=2))
    assert sign(KEYS["b"], PATH, said) != sign(KEYS["b"], PATH, changed)


# --- a simulated fleet in which the stranger may post whatever he has read or can make up ---

HOSTS = st.sampled_from("abc")
ACTIONS = st.one_of(
    st.tuples(st.just("fails over"), HOSTS),
    st.tuples(st.just("recovers"), HOSTS),
    st.tuples(st.just("reports"), HOSTS),
    st.tuples(st.just("copies"), st.integers(0, 200)),
    st.tuples(st.just("forges"), HOSTS),
    st.tuples(st.just("unsigned"), HOSTS),
    st.tuples(st.just("waits"), st.sampled_from([1.0, 15.0, 40.0, 400.0])),
    st.tuples(st.just("asks"), st.just("us")),
)


@given(st.lists(ACTIONS, max_size=40), st.sampled_from([-REPLAY_S / 2, 0.0, REPLAY_S / 2]))
def test_whatever_is_posted_only_hosts_that_have_truly_failed_over_lately_count(
    actions: list[tuple[str, Any]], skew_s: float
) -> None:
    shared, at = SharedBoard(), 0.0
    is_over = dict.fromkeys("abc", False)
    truly_at: dict[str, float] = {}
    """When each host has last reported itself that it has failed over."""

    def say(host: str) -> None:
        if is_over[host]:
            truly_at[host] = at
        shared.post(host, at, skew_s=skew_s, **OVER if is_over[host] else {})

    for action, what in actions:
        at += 0.5
        match action:
            case "fails over" | "recovers":
                is_over[what] = action == "fails over"
                say(what)
            case "reports":
                say(what)
            case "copies" if shared.board.posts:
                shared.copy(what % len(shared.board.posts), at)
            case "forges":
                shared.post(what, at, signer="us", instance=f"{what}-2", **OVER)
            case "unsigned":
                now_ms = int((THERE_S + at) * 1000)
                shared.put(report(f"{what}-3", 1, host=what, there_ms=now_ms, **OVER), at, None)
            case "waits":
                at += what
            case "asks":
                for hosts in shared.confirmed(at).values():
                    assert len(hosts) >= 2
                    # A copy counts as long as its original could have been posted then: that is the price of skew.
                    late_s = FRESH_S + REPLAY_S - skew_s + 1
                    assert all(at - truly_at.get(host, float("-inf")) <= late_s for host in hosts)
    fresh = [host for host in "abc" if is_over[host]]
    for host in fresh:
        at += 0.5
        say(host)
    if len(fresh) >= 2 and len(shared.board.posts) < 200:
        assert set(fresh) <= set(shared.confirmed(at + 1).get("orders", ()))


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"keys": {"us": "x" * 16}}, "quorum must not be more than the other hosts (0), got 2"),
        ({"keys": {"a": "x" * 16, "b": "y" * 16, "c": "z" * 16}}, "keys must have one for this host, us"),
        ({"keys": {"us": "short", "a": "y" * 16, "b": "z" * 16}}, "at least 16 bytes each: those of us are shorter"),
        ({"keys": dict.fromkeys(("us", "a", "b"), "x" * 16)}, "keys must differ from host to host"),
        ({"keys": KEYS, "quorum": 1}, "quorum must be 2 or more, got 1"),
        ({"keys": ["x"]}, "keys must be a secret for each host"),
    ],
)
def test_what_cannot_be_shared_is_refused_at_once(wishes: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionsError, match=re.escape(said)):
        ShareFailover(host="us", **wishes)


def test_keys_are_shown_nowhere_and_sharing_needs_a_board() -> None:
    share = ShareFailover(host="us", keys=KEYS)
    assert "secret" not in repr(share)
    secondary = Namespace.from_connection_string(
        "Endpoint=sb://backup.example;SharedAccessKeyName=k;SharedAccessKey=eA=="
    )
    with pytest.raises(OptionsError, match="share_failover needs board=True"):
        SendAvailabilityPairedNamespaceOptions(secondary, share_failover=share)


def test_a_proxy_reads_them_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "share.toml"
    file.write_text(
        'host = "us"\nquorum = 2\n[keys]\n' + "".join(f'{host} = "secret of {host} ...."\n' for host in KEYS)
    )
    (option,) = [each for each in DECLARED if each.name == "share_failover"]
    share = option.read(file)
    assert (share.own_host, share.quorum, sorted(share.keys)) == ("us", 2, sorted(KEYS))
    for text in ("host = ", 'host = "us"', 'hosts = "us"\n[keys]\n'):
        file.write_text(text)
        with pytest.raises(OptionsError, match="--share-failover"):
            option.read(file)
