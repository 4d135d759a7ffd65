"""Backlog queues: names, order, rotation, and what a message carries there."""
