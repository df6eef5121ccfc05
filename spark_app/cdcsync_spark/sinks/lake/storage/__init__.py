"""Where a lake's files are: a folder or an object store, and what its errors mean."""
