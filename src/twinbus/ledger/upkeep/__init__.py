"""Expected writers, copies of segments elsewhere, and room for new ones."""
