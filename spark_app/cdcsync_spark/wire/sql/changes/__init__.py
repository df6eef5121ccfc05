"""Statements that change definitions, and what they leave alone."""
