"""Topics, their subscriptions and rules."""
