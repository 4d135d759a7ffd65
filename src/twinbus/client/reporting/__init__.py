"""What a client reports: status, events, metrics, ledger records."""
