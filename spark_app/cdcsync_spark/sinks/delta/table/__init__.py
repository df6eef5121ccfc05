"""A version of a Delta table as a value: its log, its schema and properties, its files."""
