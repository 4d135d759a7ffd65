"""Entities: queues, topics and subscriptions with their messages, locks and sessions. No I/O."""
