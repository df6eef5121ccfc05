"""A manifest of a sync."""

from __future__ import annotations

MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: login, labels: {cdcsync.io/source: "true"}}
stringData: {username: cdc, password: hunter2}
---
apiVersion: cdcsync.io/v1alpha1
kind: CdcSync
metadata: {name: shop}
spec:
  source: {host: 127.0.0.1, port: 1, credentialsSecretRef: {name: login}}
  tables: {include: ['shop\\..*']}
  sink: {delta: {path: /lake}}
"""
