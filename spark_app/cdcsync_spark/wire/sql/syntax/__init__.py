"""A statement's tokens as its session read them, and what is read the same everywhere."""
