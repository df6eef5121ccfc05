"""Processes that are forked instead of started: the two sides are `client` and `server`."""
