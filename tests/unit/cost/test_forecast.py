"""What a month will cost: numbers of the documents, and sums that must hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from board_scene import BoardInMemory, report
from hypothesis import given
from hypothesis import strategies as st

from twinbus.board.message import encode_post
from twinbus.board.queue import LIFE_S
from twinbus.board.quorum import FRESH_S, TIME_GOOD_S
from twinbus.board.report import EntityFinding, encode_report
from twinbus.client.core.ping_message import ping_message
from twinbus.client.sdk.messages import Prepared, encode_messages
from twinbus.cost.bill import Use, bill
from twinbus.cost.forecast import (
    ALIAS_BYTES,
    HOURS_A_MONTH,
    PING_BYTES,
    POSTS_PER_OUTAGE,
    REPORT_BYTES,
    Usage,
    capacity,
    forecast,
    uses,
)
from twinbus.cost.prices import Prices, Tier, load_prices
from twinbus.cost.stages import CHARGES, TOLD_DEAD_LETTERED, Stage
from twinbus.errors import OptionsError
from twinbus.ledger.kinds import DELIVERY_BYTES, FACTS


def test_five_entities_and_twenty_clients_ping_six_thousand_times_an_hour() -> None:
    """C1."""
    usage = Usage(entities=5, clients=20, outages=1, outage_s=3600, failover_s=0, ping_s=60)
    assert usage.pings == 6000


def test_an_idle_syphon_of_ten_queues_polls_as_often_as_the_documents_say() -> None:
    """P13: 40 an hour, 28,800 in 30 days."""
    assert uses(Usage(queues=10))[Stage.IDLE].documents == 28_800


def test_every_process_looks_at_every_queue_each_hour() -> None:
    """C1: two requests and a peek for each queue, 720 times in 30 days."""
    found = uses(Usage(clients=20, syphons=1, queues=10, outages=0))
    assert found[Stage.LOOK] == Use(0, 0, 720 * 21 * 10)
    assert found[Stage.MANAGE].full == 21 + 10 + 720 * 21 * 2 + 4 * 720, "the syphon lists every 15 minutes"
    often = uses(Usage(clients=20, syphons=1, queues=10, outages=0, look_s=60))
    assert often[Stage.LOOK].full == 60 * 720 * 21 * 10


def test_while_messages_wait_a_syphon_looks_into_every_queue_each_25_seconds() -> None:
    """At no more than 50 messages of each, and once more to see whether these are all."""
    outage: dict[str, Any] = {"queues": 10, "outages": 1, "outage_s": 3_660, "failover_s": 60, "look_s": 1e9}
    many = uses(Usage(rate=100, size_bytes=1_000, **outage))[Stage.LOOK]
    assert (many.documents, many.full) == (0, 144 * 10 * 51)
    assert many.bytes == 144 * 10 * 50 * (1_000 + ALIAS_BYTES + DELIVERY_BYTES)
    assert uses(Usage(rate=0.01, **outage))[Stage.LOOK].full == 144 * (36 + 10)
    assert uses(Usage(rate=100, syphons=0, **outage))[Stage.LOOK].full == 0


@pytest.mark.parametrize("processes", [2, 10, 50, 200])
def test_sharing_findings_costs_what_looks_take(processes: int) -> None:
    """X6, C1. What others have posted in five minutes of calm is read once; then an outage, a look every 3 seconds."""
    usage = Usage(clients=processes, syphons=0, outages=0, board=True, shared_findings=True)
    board = BoardInMemory()
    for at in [LIFE_S * number / (processes * 5.26) for number in range(round(processes * 5.26))]:
        board.post(report(), at)
    first = board.look(life_s=FRESH_S)
    looks = HOURS_A_MONTH * 3600 / TIME_GOOD_S
    assert usage.shared_reads == pytest.approx(processes * looks * board.operations, rel=0.15)
    board.operations, outage = 0, replace(usage, outages=1, outage_s=3_600, failover_s=60)
    next_sequence = first.next_sequence
    new = round(processes * (2 + 60 / 19))
    for look in range(20):
        for _ in range(look * new // 20, (look + 1) * new // 20):
            board.post(report(), LIFE_S + 3 * look)
        next_sequence = board.look(next_sequence).next_sequence
    in_outage = outage.shared_reads - usage.shared_reads - usage.shared_reads / looks
    assert in_outage == pytest.approx(processes * board.operations, rel=0.15)


def test_nobody_pays_for_sharing_who_does_not_share() -> None:
    plain = Usage(clients=20, board=True)
    assert plain.shared_reads == 0
    shared = uses(replace(plain, shared_findings=True))[Stage.BOARD_READ].full - uses(plain)[Stage.BOARD_READ].full
    assert shared > 0
    assert shared == pytest.approx(replace(plain, shared_findings=True).shared_reads)
    with pytest.raises(OptionsError, match="shared_findings needs board"):
        Usage(shared_findings=True)


def test_a_forecast_knows_how_large_a_ping_is() -> None:
    (ping,) = encode_messages(Prepared(ping_message(), ("",)))
    assert len(ping) == PING_BYTES


def test_a_detour_is_four_charges_or_six_operations() -> None:
    """C3: 4 and 6 instead of 2 and 3."""
    usage = Usage(rate=1, size_bytes=1000, outages=1, outage_s=1000, failover_s=0)
    found = uses(usage)
    way = [found[stage] for stage in (Stage.SEND_BACKLOG, Stage.RECEIVE_BACKLOG, Stage.SETTLE_BACKLOG, Stage.SEND_HOME)]
    assert sum(use.documents for use in way) == 3 * 1000  # and the receive that every message has
    assert sum(use.full for use in way) == 4 * 1000
    assert (
        found[Stage.SEND].messages + found[Stage.SEND_HOME].messages == usage.messages == found[Stage.RECEIVE].messages
    )


def test_a_large_message_is_charged_by_started_64_kb_in_full_only() -> None:
    found = uses(Usage(rate=1, size_bytes=96 * 1024))[Stage.SEND]
    assert found.full == 2 * found.documents


@pytest.mark.parametrize(
    ("operations", "usd"),
    [(0, 0), (13e6, 0), (14e6, 0.8), (100e6, 69.6), (2500e6, 1269.6), (3000e6, 1369.6)],
)
def test_operations_cost_what_the_list_says(operations: float, usd: float) -> None:
    assert Prices().operations_usd(operations) == pytest.approx(usd)


def test_two_standard_namespaces_cost_a_fraction_of_geo_replicated_premium() -> None:
    expected = forecast(Usage(rate=1))
    replicated = expected.alternatives[-1]
    assert replicated.name.startswith("Premium with geo-replication")
    assert replicated.usd == pytest.approx(2 * 677.08 + 2_592_000 * 1024 / 1e9 * 0.09)
    assert expected.bill.usd("full") == pytest.approx(9.81)


def test_the_backlog_is_sized_from_data_and_outage() -> None:
    """A3: 100 messages of 100 KB a second for six hours are 216 GB."""
    found = capacity(Usage(rate=100, size_bytes=100_000, outage_s=6 * 3600, failover_s=0, queues=10))
    assert found.bytes == pytest.approx(216e9, rel=0.01)
    assert found.queues_needed == 81
    assert not found.is_enough
    assert found.hours == pytest.approx(0.74, abs=0.01)
    assert capacity(Usage(rate=0)).hours is None


amounts = st.floats(0, 1e10)


@given(st.dictionaries(st.sampled_from(list(Stage)), st.builds(Use, amounts, amounts, amounts, amounts)))
def test_stages_add_up_to_the_whole(used: dict[Stage, Use]) -> None:
    prices = Prices(egress_usd_per_gb=0.05)
    found = bill("a month", used, prices)
    leaving = sum(use.bytes for stage, use in used.items() if stage.startswith(("receive from", "looks ")))
    expected = prices.standard_usd_a_month + prices.operations_usd(found.use.full) + leaving / 1e9 * 0.05
    assert found.usd("full") == pytest.approx(expected)
    assert found.pairing_usd("full") <= found.usd("full")
    assert found.as_dict()["total_usd"]["full"] == pytest.approx(expected, abs=1e-5)


def test_whatever_costs_an_operation_has_a_stage() -> None:
    charged = {charge.kind for charge in CHARGES} - {TOLD_DEAD_LETTERED}
    assert charged == {kind for kind, facts in FACTS.items() if facts.operation is not None}


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(OptionsError) as caught:
        Usage(entities=0, rate=-1, ping_s=0, outages=1000, outage_s=36_000)
    for part in ("entities", "rate", "ping_s", "longer than a month"):
        assert part in str(caught.value)


def test_a_table_of_ones_own_replaces_the_prices_it_names(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text('as_of = "2027-01-01"\nstandard_operations = [{usd_per_million = 2.0}]\n')
    prices = load_prices(file)
    assert (prices.as_of, prices.standard_operations) == ("2027-01-01", (Tier(2.0),))
    assert prices.operations_usd(3e6) == 6
    assert prices.standard_usd_a_month == Prices().standard_usd_a_month


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("premium_usd_a_month = 1", "no date"),
        ('as_of = "x"\nprize = 1', "prize"),
        ('as_of = "x"\npremium_usd_a_month = -1', "premium_usd_a_month is -1"),
        ('as_of = "x"\nstandard_operations = [{usd_per_million = 1.0, up_to_million = 5}]', "must rise"),
        ('as_of = "x"\nstandard_operations = []', "must rise"),
        ("as_of", "cannot be read"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(OptionsError, match=said):
        load_prices(file)


def test_a_board_costs_a_report_a_minute_three_in_an_outage_and_what_is_read() -> None:
    """X6, C1."""
    assert Stage.BOARD not in uses(Usage(clients=20))
    calm = Usage(clients=1, syphons=0, outages=0, board=True)
    assert calm.posts == pytest.approx(HOURS_A_MONTH * 60 / 0.95)
    outage = Usage(clients=1, syphons=0, outages=1, outage_s=3_600, failover_s=0, board=True)
    assert outage.posts - calm.posts == pytest.approx(2 * 60 / 0.95 + POSTS_PER_OUTAGE)
    read = uses(Usage(clients=200, syphons=0, outages=0, board=True, board_looks=100))
    assert read[Stage.BOARD].full == read[Stage.BOARD].documents == pytest.approx(200 * calm.posts)
    assert read[Stage.BOARD_READ].documents == 0
    assert read[Stage.BOARD_READ].full == pytest.approx(100 * (200 * 5 / 0.95 + 2))


def test_a_forecast_knows_how_large_a_report_is() -> None:
    """Of a process with five entities: it is enough, and not twice as much."""
    entities = tuple([EntityFinding(entity=f"entity-{number}") for number in range(5)])
    said = report("0123456789abcdef", 1000, host="orders-7d9f8b6c5-x2k4p", entities=entities, spooled=0)
    size = len(encode_post(said, encode_report(said)))
    assert size <= REPORT_BYTES < 2 * size
