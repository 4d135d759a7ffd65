"""Mutants of the board, and of what a process reports beside sending."""

from __future__ import annotations

from mutant import Mutant

BOARD = (
    Mutant(
        "X6",
        "board/fleet.py",
        "            return FleetVerdict.HEALTHY\n        return FleetVerdict.HEALTHY if self.is_complete",
        "            return FleetVerdict.HEALTHY\n        return FleetVerdict.HEALTHY if True",
        "a fleet that cannot be seen is healthy",
        "test_a_board_on_which_all_is_old_by_the_clock_of_the_reader_is_unknown_and_not_healthy",
    ),
    Mutant(
        "X6",
        "board/fleet.py",
        "        return at + (self._ahead_s or 0.0)",
        "        return at + 1.7e9",
        "the reader's clock decides what is over",
        "test_a_report_is_over_when_the_secondary_clock_proves_it_whatever_the_reader_clock_says",
    ),
    Mutant(
        "X6",
        "board/fleet.py",
        "        if kept is not None and report.number <= kept.report.number:",
        "        if False:",
        "an old report that is posted again holds",
        "test_the_latest_report_of_an_instance_holds_and_an_old_one_posted_again_changes_nothing",
    ),
    Mutant(
        "X6",
        "board/fleet.py",
        "        if kept is None and len(self._kept) >= self._most:",
        "        if False:",
        "a flood of reports fills the memory of a reader",
        "test_a_flood_of_instances_is_bounded_and_makes_the_fleet_unknown_but_keeps_who_was_known",
    ),
    Mutant(
        "X6",
        "board/schedule.py",
        "self._pause_s = min(2 * self._pause_s, CHANGE_PAUSE_MAX_S) if is_change and is_soon else CHANGE_PAUSE_S",
        "self._pause_s = CHANGE_PAUSE_S",
        "a process that is unsteady posts every second",
        "test_however_fast_things_change_the_number_of_reports_is_bounded",
    ),
    Mutant(
        "X6",
        "board/sharing.py",
        "if len(who) >= self._quorum}",
        "if len(who) >= 1}",
        "one host moves the others",
        "test_one_host_moves_nobody_however_many_of_its_processes_say_so_nor_do_we_ourselves",
    ),
    Mutant(
        "X6",
        "board/sharing.py",
        "        if not -REPLAY_S * 1000 <= post.enqueued_ms - report.there_ms <= REPLAY_S * 1000:",
        "        if False:",
        "a copy of a signed report counts as a new one",
        "test_a_copy_that_somebody_posts_later_does_not_count",
    ),
    Mutant(
        "X6",
        "board/sharing.py",
        "        return at + self._ahead_max_s - signed.enqueued_s",
        "        return at + (self._ahead_min_s or 0.0) - signed.enqueued_s - FRESH_S",
        "an old report counts while nothing proves that it is old",
        "test_a_report_does_not_count_when_it_is_old_even_if_nothing_newer_proves_it_but_our_own",
    ),
    Mutant(
        "X7",
        "client/inspection/fleet_health.py",
        "    is_worse = order.index(found) < order.index(judgement.health)",
        "    is_worse = False",
        "the verdict does not say what the processes say",
        "test_status_shows_who_has_failed_over_and_its_verdict_says_so",
    ),
    Mutant(
        "S2",
        "pairing/abilities.py",
        "    return failure.is_connection and failure.kind in (Kind.UNREACHABLE, Kind.NO_ANSWER)",
        "    return failure.kind in (Kind.UNREACHABLE, Kind.NO_ANSWER)",
        "an entity that does not answer is taken for a primary that cannot be contacted",
        "test_a_link_that_is_not_answered_says_nothing_of_the_whole_primary",
    ),
)
