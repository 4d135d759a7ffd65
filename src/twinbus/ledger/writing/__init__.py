"""Writes the ledger beside the work: nothing here keeps a caller waiting."""
