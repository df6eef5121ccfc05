"""Definitions of tables at the reader's place: their steps, and what stops a table."""
