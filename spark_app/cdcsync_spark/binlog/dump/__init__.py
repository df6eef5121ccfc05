"""The connection by which a server sends its binlog, and what keeps it alive and bounded."""
