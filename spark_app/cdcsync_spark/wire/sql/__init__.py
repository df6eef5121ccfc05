"""Statements of the binlog, read as the server read them: tokens first, then what a statement does
to which table."""
