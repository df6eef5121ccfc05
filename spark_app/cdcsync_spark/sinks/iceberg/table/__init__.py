"""The files and values of an Iceberg table: metadata, manifests, vectors, schema."""
