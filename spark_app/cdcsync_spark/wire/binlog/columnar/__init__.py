"""Transactions without anything odd, thousands at once: their events as arrays."""
