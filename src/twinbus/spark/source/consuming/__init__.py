"""A stream that consumes: receives under lock, stages, completes."""
