"""Jobs: they read data, run transforms on it, and return or keep the results."""
