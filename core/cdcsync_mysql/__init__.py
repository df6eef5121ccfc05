"""The source: connections, catalog, checks, watermarks, plans."""
