"""The binlog: events to facts, row images to Arrow columns."""
