"""Keeps a store in a SQLite file, so that an embedded cluster can be stopped and resumed.

Each write goes into the file before it is acknowledged, in the order of revisions, one transaction each. In
WAL mode with `synchronous=NORMAL` a killed process loses nothing (the operating system has the pages); a
machine that loses power may lose the last moments, but what is left is always a prefix of history.
"""

import sqlite3
from pathlib import Path

import msgspec

from karpenter.embedded.kinds import KindRegistry
from karpenter.embedded.store import Journal, Store

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (resource, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class StateFileError(Exception):
    """The state file cannot be used; says why and what to do."""


class StateFile:
    """A store's journal on disk.

    Raises:
        StateFileError: when the file is not one of ours, is newer, or another process has it open.
    """

    def __init__(self, path: Path, *, wait_seconds: float = 2.0) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=wait_seconds)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.execute("COMMIT")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise StateFileError(
                    f"{path} was written by a newer version "
                    f"(format {version}, this one knows {SCHEMA_VERSION})"
                )
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except sqlite3.DatabaseError as error:
            raise StateFileError(
                f"cannot use {path} as state file: {error} (is another cluster running on it? "
                "else move it away to start afresh)"
            ) from error

    def load(self, store: Store, registry: KindRegistry) -> int:
        """Put all saved objects back into an empty store; return how many. Revisions continue.

        Definitions come first, so that the kinds of custom objects are known; they are registered here.
        """
        count = 0
        rows = self._db.execute(
            "SELECT resource, revision, body FROM objects ORDER BY resource <> ?, revision", (_DEFINITIONS,)
        )
        for resource, revision, body in rows:
            try:
                kind = registry.by_group_resource(resource)
            except KeyError:
                raise StateFileError(
                    f"{self._path} holds objects of {resource}, which nothing defines (move the file away)"
                ) from None
            obj = msgspec.json.decode(body)
            store.load(kind, obj, bytes(body), revision)
            if resource == _DEFINITIONS:
                registry.register(obj)
            count += 1
        row = self._db.execute("SELECT value FROM meta WHERE name = 'revision'").fetchone()
        if row is not None:
            store.revision = max(store.revision, row[0])
        store.forget_history()
        return count

    def attach(self, store: Store, registry: KindRegistry) -> int:
        """Load into `store`, save what it held before, and journal its writes from now on.

        Returns how many objects were loaded.
        """
        before = {
            (kind.group_resource, record.key): record
            for kind in registry.all()
            if kind.stored
            for record in store.records(kind.group_resource)
        }
        count = self.load(store, registry)
        for (resource, key), record in before.items():
            known = "SELECT 1 FROM objects WHERE resource = ? AND key = ?"
            if self._db.execute(known, (resource, key)).fetchone() is None:
                self.record(Journal(resource, "ADDED", record))
        store.journal = self.record
        return count

    def record(self, write: Journal) -> None:
        """Save one write; suitable as `Store.journal`."""
        db, record = self._db, write.record
        db.execute("BEGIN")
        try:
            if write.type == "DELETED":
                sql = "DELETE FROM objects WHERE resource = ? AND key = ?"
                db.execute(sql, (write.group_resource, record.key))
                sql = "INSERT OR REPLACE INTO meta VALUES ('revision', ?)"
                db.execute(sql, (record.revision,))
            else:
                sql = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)"
                db.execute(sql, (write.group_resource, record.key, record.revision, record.body))
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()
