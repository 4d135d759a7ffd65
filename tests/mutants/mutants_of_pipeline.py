"""Mutants of sections C and D: cost, and the data pipeline."""

from __future__ import annotations

from mutant import Mutant

PIPELINE = (
    Mutant(
        "C1",
        "cost/stages.py",
        "    Kind.BACKLOGGED: Stage.SEND_BACKLOG,",
        "    Kind.BACKLOGGED: Stage.SEND,",
        "what is sent to the backlog is charged as if it had gone to the primary",
        "test_a_message_that_took_the_detour_is_charged_four_times",
    ),
    Mutant(
        "C1",
        "client/chronicle.py",
        "(Kind.BACKLOGGED, self._secondary) if queue else",
        "(Kind.ACCEPTED, self._secondary) if queue else",
        "the ledger says that messages in the backlog are on the primary",
        "test_every_message_is_in_the_ledger_where_it_went",
    ),
    Mutant(
        "C2",
        "cost/forecast.py",
        "        return self.entities * self.clients * (failed_over_s // self.ping_s) * self.outages",
        "        return self.entities * (failed_over_s // self.ping_s) * self.outages",
        "the forecast has the pings of one client, however many there are",
        "test_five_entities_and_twenty_clients_ping_six_thousand_times_an_hour",
    ),
    Mutant(
        "C2",
        "cost/forecast.py",
        "SPREAD = 2.0",
        "SPREAD = 1.0",
        "the backlog is sized as if senders shared queues evenly",
        "test_the_backlog_is_sized_from_data_and_outage",
    ),
    Mutant(
        "C3",
        "cost/forecast.py",
        "return Use(messages, messages, messages * ceil(size / STEP_BYTES), messages * size)",
        "return Use(messages, messages, messages, messages * size)",
        "the full rule does not count steps of 64 KB",
        "test_a_large_message_is_charged_by_started_64_kb_in_full_only",
    ),
    Mutant(
        "D1",
        "spark/session.py",
        '    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)',
        '    os.environ["PYSPARK_PYTHON"] = "/bin/false"',
        "Spark's workers do not run in the Python of the driver",
        "test_the_command_ends_with_0_when_the_backlog_is_empty",
    ),
    Mutant(
        "D2",
        "spark/drain/plan.py",
        "    groups = _dealt(deep, min(count, len(deep))) if in_order else _cut(deep, count)",
        "    groups = _cut(deep, count)",
        "a queue is shared by several tasks although order is asked for",
        "test_in_order_a_queue_belongs_to_exactly_one_task",
    ),
    Mutant(
        "D2",
        "spark/drain/shard.py",
        "queues=shard.queues,\n        ledger=",
        "queues=shard.queues[:1],\n        ledger=",
        "a task empties only the first of its queues",
        "test_topics_sessions_and_partitions_get_theirs_home",
    ),
    Mutant(
        "D3",
        "spark/servicebus/ranges.py",
        "after[entity] = min(extent.last, extent.first + shares[entity] - 1) + 1",
        "after[entity] = min(extent.last, extent.first + shares[entity] - 1)",
        "a stream reads the last message of a batch again, or never",
        "test_a_batch_ends_within_its_limit_and_goes_on_if_it_can",
    ),
    Mutant(
        "D4",
        "spark/transforms/reconciliation.py",
        '    lost = F.when(col("first_ms") <= dark_until_ms, UNKNOWN).otherwise(LOST)',
        "    lost = F.lit(LOST)",
        "what may have its records in the dark is called lost",
        "test_a_gap_turns_lost_nothing_into_unknown",
    ),
    Mutant(
        "D4",
        "spark/transforms/reconciliation.py",
        "        .when(repeated | (there > 1), DUPLICATED)",
        "        .when(repeated, DUPLICATED)",
        "a message that is stored twice on the primary is not called duplicated",
        "test_exactly_the_planted_misfortunes_are_found",
    ),
)
