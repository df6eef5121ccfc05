"""The kinds of sinks as sections of the resource, one file a kind."""
