"""Low and high watermarks, and the proof that a connection reaches the same binlog."""
