"""Rows in memory, for the source's side and for the sinks': Arrow's types, changes, events."""
