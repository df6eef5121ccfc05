"""Statements that change rows, temporary tables among them."""
