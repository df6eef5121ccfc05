"""Questions whose answers are elsewhere in the binlog, or on the server."""
