"""Commits of delta-rs, for tables that cannot have deletion vectors."""
