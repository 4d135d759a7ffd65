"""The same questions asked of DuckDB, written down separately, over the same Parquet files."""

from __future__ import annotations

from typing import Any

import duckdb

from twinbus.spark.compaction.compaction import CompactedLedger

Name = tuple[str, str]

STEPS = """
create view steps as select * replace (
  case when queue = '' and entity <> '' and namespace <> '' and kind in (
      'stored', 'delivered', 'duplicate', 'dead_lettered', 'expired', 'inventory', 'copied', 'unclaimed', 'forwarded',
      'unscheduled', 'removed', 'throttled', 'long_poll'
    ) and lower(namespace) not in (
      select lower(namespace) from recorded where kind in ('accepted', 'sent_home', 'received', 'not_sent', 'paired'))
  then lower(namespace) || ':' || entity else entity end as entity)
from recorded
"""
"""Entities of a namespace that no client calls its primary have its name before theirs."""

PER_MESSAGE = """
with m as (
  select split_part(lower(entity), '/subscriptions/', 1) as entity, message_id, kind, queue, at_ms, until_ms,
         session_id, number, position, process, lower(entity) as reader
  from steps where message_id is not null and entity <> '' and lower(entity) not like '%/$deadletterqueue'
    and kind in ('forwarded','unclaimed','unscheduled',
                 'spooled','left_spool','moved_to_backlog','spool_in_doubt','spool_dead_lettered','spool_expired',
                 'accepted','backlogged','in_doubt','not_sent','sent_home','completed','released','lock_lost',
                 'redriven','discarded','received_from_backlog','cancelled','dead_lettered','expired','stored','delivered','duplicate',
                 'received')
), f as (
  select entity, message_id,
    count(*) filter (kind = 'accepted') as ok, count(*) filter (kind in ('backlogged', 'moved_to_backlog')) as parked,
    count(*) filter (kind = 'spooled') as spooled, count(*) filter (kind = 'left_spool') as left_spool,
    count(*) filter (kind in ('in_doubt', 'spool_in_doubt')) as doubt, count(*) filter (kind = 'not_sent') as refused,
    count(*) filter (kind = 'sent_home') as home, count(*) filter (kind = 'completed') as gone,
    count(*) filter (kind in ('released', 'lock_lost', 'received_from_backlog')) as touched,
    count(*) filter (kind = 'redriven') as again,
    count(*) filter (kind in ('discarded', 'cancelled')) as binned,
    count(*) filter (kind = 'dead_lettered' and queue = '') as dead_here,
    count(*) filter ((kind = 'dead_lettered' and queue <> '') or kind = 'spool_dead_lettered') as dead_there,
    count(*) filter (kind = 'expired' and queue = '') as old_here,
    count(*) filter ((kind = 'expired' and queue <> '') or kind = 'spool_expired') as old_there,
    count(*) filter (kind = 'stored' and queue = '') as kept,
    min(at_ms) filter (kind = 'stored' and queue = '') as kept_ms,
    count(*) filter (kind = 'duplicate' and queue = '') as dup,
    count(*) filter (kind = 'delivered' and queue = '') as done,
    count(*) filter (kind = 'received' and queue = '') as taken,
    count(*) filter (kind = 'forwarded' and queue = '') as sent_on,
    count(*) filter (kind in ('unclaimed', 'unscheduled') and queue = '') as unwanted,
    count(distinct reader) filter (kind in ('delivered', 'received') and queue = '') as readers,
    min(at_ms) as first_ms, max(session_id) as session,
    max(queue) filter (kind in ('backlogged', 'moved_to_backlog')) as q,
    count(distinct queue) filter (kind in ('backlogged', 'moved_to_backlog')) as queues,
    min(at_ms) filter (kind in ('backlogged', 'moved_to_backlog')) // 60000 as parked_min,
    min(at_ms) filter (kind in ('accepted','sent_home') or (kind = 'stored' and queue = '')) as arrived,
    max(until_ms) filter (kind in ('accepted','sent_home','backlogged','spooled','stored')) as due,
    array_agg(distinct process) filter (kind in ('accepted','sent_home')) as ackers,
    array_agg(distinct process) filter (kind in ('accepted','backlogged','spooled')) as senders,
    abs(kept_ms - min(at_ms) filter (kind in ('accepted','sent_home') and queue = '')) as apart
  from m group by all
), clocks as (
  select ackers[1] as process, max(apart) as apart from f where ok + home = 1 and kept = 1 group by all
), e as (  -- by how many minutes a message may have come later than it says
  select entity, message_id, if(count(apart) = count(*), (max(apart) + 59999) // 60000, 0) as reach
  from (select entity, message_id, unnest(ackers) as process from f where len(ackers) = 1 or ok + home <= 2)
  left join clocks using (process) group by all
), g as (
  select f.*, coalesce(reach, 0) as reach, arrived // 60000 as arrived_min,
    greatest(arrived, coalesce(due, 0)) // 60000 as due_min,
    max(arrived // 60000) filter (done > 0) over (partition by entity, session) as done_to,
    max(arrived // 60000) filter (kept > 0) over (partition by entity) as kept_to,
    max(parked_min) filter (home > 0 and queues = 1) over (partition by entity, q) as home_to,
    max(parked_min) filter (home > 0 and queues = 1) over (partition by entity, q, senders) as own_home_to
  from f left join e using (entity, message_id)
)
select entity, message_id, first_ms, case
  when ok + parked + spooled + doubt = 0 then if(refused > 0, 'not_sent', 'sent_elsewhere')
  when (done > 1 or (done = 0 and taken > 1)) and readers = 1 then 'duplicated'
  when if(kept > 0, kept, ok + home - dup) > 1 then 'duplicated'
  when done > 0 or taken > 0 then 'delivered'
  when dead_here > 0 then 'dead_lettered'
  when old_here > 0 then 'expired'
  when unwanted > 0 then 'discarded'
  when sent_on > 0 then 'forwarded'
  when kept > 0 and kept_ms <= (
    select max(r.at_ms) from steps r where r.kind = 'removed' and lower(r.entity) = g.entity) then 'discarded'
  when binned > 0 and parked + spooled = 0 then 'discarded'
  when kept > 0 then 'waiting'
  when ok + home > 0 then
    if(coalesce(due_min + reach + $horizon < done_to, false)
       or coalesce(arrived_min + reach + $horizon < kept_to, false), 'lost', 'stored_on_primary')
  when dead_there > again + binned then 'dead_lettered'
  when old_there > 0 then 'expired'
  when binned > 0 then 'discarded'
  when parked > 0 and gone = 0 then
    case when touched > 0 or queues > 1 then 'waiting'
      when len(senders) = 1 and coalesce(parked_min + $horizon < own_home_to, false) then 'lost'
      when coalesce(parked_min + $horizon < home_to, false) then 'unknown' else 'waiting' end
  when spooled > left_spool then 'waiting'
  when parked + spooled > 0 then 'lost'
  else 'in_doubt' end as verdict
from g
"""

LATE = """
with m as (  -- $way: who says that a message arrived
  select lower(entity) as entity, message_id, max(session_id) as session,
    min(process) filter (kind in ('accepted', 'backlogged', 'spooled')) as sender,
    min(number * 1048576 + position) filter (kind in ('accepted', 'backlogged', 'spooled')) as sent,
    min(at_ms) filter (kind = $way and queue = '') as came,
    min(number * 1048576 + position) filter (kind = $way and queue = '') as place
  from steps where message_id is not null and entity <> '' group by all
), w as (
  select *, min(row(came, place)) filter (came is not null) over (
    partition by entity, session, sender order by sent rows between 1 following and unbounded following) as later
  from m where sent is not null
)
select entity, count(came) as arrived, count(*) filter (came is not null and row(came, place) > later) as late
from w group by entity
"""

CHARGES = """
with t as (select *, case when kind in ('delivered', 'received', 'dead_lettered') then 210 else 0 end as added from steps)
select kind, queue <> '' as parked, count(message_id) as messages,
  sum(case when message_id is not null then greatest(1, ceil(coalesce(size + added, 0) / 65536))
      else greatest(count, 1) end)::bigint as operations,
  sum(coalesce(size + added, 0) + bytes)::bigint as bytes
from t group by all
"""


class Oracle:
    """Looks at a store."""

    def __init__(self, compacted: CompactedLedger) -> None:
        self._db = duckdb.connect()
        files = [str(compacted.store.path() / file) for file in compacted.manifest.files]
        self._db.read_parquet(files).create_view("recorded")
        self._db.execute(STEPS)

    def verdicts(self, horizon_min: int) -> dict[Name, str]:
        rows = self._db.execute(PER_MESSAGE, {"horizon": horizon_min}).fetchall()
        return {(entity, message_id): verdict for entity, message_id, _, verdict in rows}

    def late(self, way: str = "delivered") -> dict[str, tuple[int, int]]:
        """How many messages of each entity arrived, and how many of them late; `way`: the kind of step that says so."""
        rows = self._db.execute(LATE, {"way": way}).fetchall()
        return {entity: (arrived, late) for entity, arrived, late in rows}

    def charges(self) -> dict[tuple[str, bool], tuple[int, int, int]]:
        return {(row[0], row[1]): row[2:] for row in self._db.execute(CHARGES).fetchall()}

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self._db.execute(query).fetchall()
