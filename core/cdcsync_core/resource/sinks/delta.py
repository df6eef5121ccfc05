"""The section of Delta tables."""

from __future__ import annotations

from pydantic import model_validator

from cdcsync_core.resource.sinks.kind import SinkKind, StoreUse
from cdcsync_core.resource.sinks.lake_parts import HistoryColumns, LakePath, SinkCredentialsRef, StoreOptions, TableMode
from cdcsync_core.resource.spec_part import Flag
from cdcsync_core.tables.event_columns import EventColumns


class DeltaOptions(StoreOptions):
    """`deletion_vectors` false: every MERGE rewrites the files that it touches, for readers that do
    not know deletion vectors."""

    deletion_vectors: Flag = True


class Delta(SinkKind):
    path: LakePath
    credentials_secret_ref: SinkCredentialsRef | None = None
    options: DeltaOptions = DeltaOptions()
    mode: TableMode = TableMode.REPLICA
    history_columns: HistoryColumns = HistoryColumns()

    @model_validator(mode="after")
    def _publishable(self) -> Delta:
        if self.mode is TableMode.HISTORY and not self.options.deletion_vectors:
            raise ValueError("mode history needs options.deletionVectors: its snapshot is published with them")
        return self

    @property
    def keeps_events(self) -> bool:
        return self.mode is TableMode.HISTORY

    @property
    def refuses_declared_key(self) -> str:
        if self.mode is TableMode.HISTORY:
            return "a history table, which needs no key,"
        return "" if self.options.deletion_vectors else "a Delta table without deletion vectors"

    def event_columns(self) -> EventColumns | None:
        return self.history_columns.names if self.mode is TableMode.HISTORY else None

    def stores(self) -> tuple[StoreUse, ...]:
        secret = self.credentials_secret_ref.name if self.credentials_secret_ref else ""
        return (StoreUse("spec.sink.delta", self.path, self.options.endpoint, self.options.region, secret),)

    def secrets(self) -> dict[str, set[str]]:
        """Its keys are the object store's business."""
        return {self.credentials_secret_ref.name: set()} if self.credentials_secret_ref else {}
