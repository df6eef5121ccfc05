"""The response to a prepared SELECT: packets, binary rows, Arrow columns."""
