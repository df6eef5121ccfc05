"""Runs as pods: started, observed, removed."""
