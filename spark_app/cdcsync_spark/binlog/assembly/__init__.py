"""Events to whole transactions: which tables take them, in which order."""
