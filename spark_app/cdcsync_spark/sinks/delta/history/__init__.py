"""Delta tables that keep every change."""
