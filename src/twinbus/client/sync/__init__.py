"""The paired client for threads."""
