"""Which runs should exist, what their ends mean, and when a preflight is due."""
