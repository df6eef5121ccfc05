"""Iceberg tables that keep every change."""
