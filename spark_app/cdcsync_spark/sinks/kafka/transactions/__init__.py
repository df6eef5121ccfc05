"""Records and state as one transaction, or what is done without one."""
