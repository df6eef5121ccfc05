"""What a server and a table must have, as checks with remedies."""
