"""The source's bytes to facts and to Arrow: pure functions and one state machine, without socket,
clock or console."""
