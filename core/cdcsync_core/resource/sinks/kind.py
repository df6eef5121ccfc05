"""What a section of a sink answers, whatever its kind.

Why it exists: what the operator needs of a sink (its stores and servers, which Secrets it
names, what its pods must mount) is the same question for every kind. So each kind answers it here,
and nothing outside asks which kind it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from urllib.parse import urlsplit

from cdcsync_core.resource.connection_spec import AccountUse
from cdcsync_core.resource.spec_part import Part
from cdcsync_core.tables.event_columns import EventColumns


@dataclass(frozen=True)
class Endpoint:
    """A server that the resource names: the path of the field, and the host."""

    field: str
    host: str


@dataclass(frozen=True)
class StoreUse:
    """A store of files that a sink uses, and how it is reached. `field` is the path of its section
    in the resource, for messages, and `path_field` that of the path, below it; `secret` names the
    Secret with the credentials, empty where the identity of the process serves."""

    field: str
    path: str
    endpoint: str = ""
    region: str = ""
    secret: str = ""
    path_field: str = "path"

    @property
    def is_folder(self) -> bool:
        """Whether all pods of a run must mount the same volume at the path: a folder is each pod's
        own."""
        return "://" not in self.path

    @property
    def server(self) -> Endpoint:
        """The host is empty where there is no endpoint."""
        return Endpoint(f"{self.field}.options.endpoint", urlsplit(self.endpoint).hostname or "")


@dataclass(frozen=True)
class Nouns:
    """What messages call a sink's servers and its targets."""

    servers: str = "servers"
    targets: str = "tables"


class SinkKind(Part, ABC):
    """What every kind of sink answers about its section."""

    @abstractmethod
    def stores(self) -> tuple[StoreUse, ...]:
        """The stores of files, none where all is in a server."""

    def servers(self) -> tuple[Endpoint, ...]:
        """The servers that the section names beside the stores'. Their client belongs to the Spark
        side, and only drivers ask them."""
        return ()

    @property
    def asked_field(self) -> str:
        """The field of what only drivers can ask beside the stores, servers or a file; empty where
        there is nothing."""
        return next((server.field for server in self.servers()), "")

    def endpoints(self) -> tuple[Endpoint, ...]:
        """All servers that the section names, those of stores first."""
        return (*(store.server for store in self.stores() if store.endpoint), *self.servers())

    @property
    def nouns(self) -> Nouns:
        return Nouns()

    @abstractmethod
    def secrets(self) -> dict[str, set[str]]:
        """Secret name -> keys that must be in it; none where only the Secret must be there."""

    def secret_hosts(self) -> dict[str, tuple[str, ...]]:
        """Secret name -> the hosts that get it, of those Secrets that may be for some hosts
        only."""
        return {}

    def accounts(self) -> tuple[AccountUse, ...]:
        """The accounts of servers; a store's is none, whose keys have names of their own."""
        return ()

    @abstractmethod
    def event_columns(self) -> EventColumns | None:
        """The columns that targets have beside the source's; None where they keep no events."""

    @property
    def reserved_columns(self) -> frozenset[str]:
        """Names that no column of a target may have, because readers have them."""
        return frozenset()

    @property
    @abstractmethod
    def keeps_events(self) -> bool:
        """Whether targets have every change in order, so that a resnapshot begins them again."""

    @property
    def needs_row_key(self) -> bool:
        """Whether a target identifies rows by a key, so that a table without one is refused."""
        return not self.keeps_events

    @property
    def refuses_declared_key(self) -> str:
        """What would not see that two rows have one declared key; empty where a commit does."""
        return "this sink"

    @property
    def topics(self) -> str:
        """The template of the names of topics; empty where targets are none."""
        return ""
