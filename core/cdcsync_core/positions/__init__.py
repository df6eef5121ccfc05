"""Places in binlogs, their order, and what of a table is read at which."""
