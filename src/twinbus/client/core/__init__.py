"""What both clients share: flows, state, scheduling of pings. No SDK calls."""
