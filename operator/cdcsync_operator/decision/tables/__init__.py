"""Which tables a sync has, and which of them are resnapshotted."""
