"""Connections to a server: who may log in, how long a question may take, what its errors mean."""
