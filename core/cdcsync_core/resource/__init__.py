"""The resource that a user writes."""
