"""Game days: an outage on purpose, canaries sent through it, and numbers that say how well the pair took it."""
