"""Queries on the ledger, as pure functions from DataFrame to DataFrame.

They start from *steps*: one row for what one event did to one message (`transforms.steps`). None of them reads, writes
or has a session; the docstring says what a row of the result is.
"""
