"""Objects of the API server as values: a run's, whose they are, what a pod's end means."""
