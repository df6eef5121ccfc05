"""Fixtures of the benchmarks."""

from bench.commit_times import show  # noqa: F401 (pytest finds fixtures by their names)
