"""Tables of a lake that keep every change, whatever the table's format: rows, commits, staged
copies, maintenance, the table that a history ends with."""
