"""What of a decision users and `cdcsync run` get: phase, conditions, exit code."""
