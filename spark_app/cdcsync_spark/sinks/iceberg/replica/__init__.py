"""Iceberg tables that hold the newest row of each key: commits, staged copies, expiry."""
