"""A stream that consumes: receives under lock, stages, completes.

staging.py             the decisions: names, manifests, offsets, plans; and why nothing is lost
staged_files.py        the files: what is in one, and how much
task_steps.py          the steps of a task, in their order
task_receiver.py       the link of a task to its queue
consuming_offsets.py   the driver: plans batches, deletes what they have delivered
consuming_reader.py    the reader that Spark calls
"""
