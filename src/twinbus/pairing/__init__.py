"""The pairing core: decides, does nothing. Time, chance and outcomes come in as values, orders leave as values."""
