"""Delta tables that hold the newest row of each key: commits, steps, maintenance."""
