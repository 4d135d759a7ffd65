"""Operating a namespace: metrics, the control socket, dumps, backups, ledger events."""
