"""MySQL's binary JSON, and partial updates of it."""
