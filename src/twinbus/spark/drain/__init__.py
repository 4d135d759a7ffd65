"""Brings a backlog home as a Spark job: the driver plans and counts, tasks on executors pump.

plan.py           which task empties which queues, by their depth
shard.py          what one task does; knows nothing of Spark
rounds.py         tasks as a Spark job, and progress meanwhile
drain.py          rounds until nothing is left; the same at intervals, as a structured stream
ledger_counts.py  what was moved, by what the attempts recorded in the ledger
"""
