"""Clients of brokers and of a schema registry: addresses, logins, rights, what errors mean."""
