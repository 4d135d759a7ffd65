"""Bringing a backlog home as a Spark job: the driver plans and counts, tasks on executors pump.

plan.py    which task empties which queues, by their depth
shard.py   what one task does; knows nothing of Spark
rounds.py  tasks as a Spark job, and what is seen of it meanwhile
drain.py   rounds until nothing is left
books.py   what was moved, from what the attempts wrote into the ledger
clock.py   the same every so often, as a structured stream
"""
