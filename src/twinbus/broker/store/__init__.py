"""What a namespace has stored: in SQLite by one writer and one reader thread, or in memory."""
