"""The pairing core: decides, does nothing. Time, chance and outcomes come in as values; what is to do leaves as values."""
