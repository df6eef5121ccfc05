"""Columns in statements: types, defaults, conversions."""
