"""Checks and creates what a pair needs before the first outage."""
