"""Images of rows: which columns they have, where each value begins."""
