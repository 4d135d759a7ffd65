"""Where transforms meet data: each job reads, asks, and hands back what it found."""
