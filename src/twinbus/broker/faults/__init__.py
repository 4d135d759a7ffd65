"""Faults on purpose and throttling: what strikes which operation, and how. No I/O."""
