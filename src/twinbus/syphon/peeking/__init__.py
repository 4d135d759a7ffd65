"""Questions about a backlog, answered by peeking: nothing is taken."""
