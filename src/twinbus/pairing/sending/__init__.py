"""One send: retries, what a failure means, and the receipt."""
