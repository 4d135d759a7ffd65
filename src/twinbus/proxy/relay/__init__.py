"""Receivers, sessions, requests and transactions, relayed to the primary link by link."""
