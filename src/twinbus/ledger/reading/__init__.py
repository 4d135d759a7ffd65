"""Reads a ledger: its records, its end, and whether it is complete."""
