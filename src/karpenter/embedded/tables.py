"""Tables (`meta.k8s.io/v1 Table`), which is how kubectl gets its columns.

A custom kind's columns are its CRD's additionalPrinterColumns; built-in ones come from
`karpenter.embedded.columns`.
"""

from typing import Any

import msgspec

from karpenter.embedded.ages import age
from karpenter.embedded.columns import DEFAULT_PRINTER, PRINTERS, Column, Json, Printer
from karpenter.embedded.jsonpath import lookup
from karpenter.embedded.kinds import Kind, PrinterColumn
from karpenter.embedded.lists import list_meta
from karpenter.embedded.requests import Request
from karpenter.embedded.store import Page, Record, Store, encode_event
from karpenter.embedded.watching import Render

TABLE = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}


class Tables:
    """Renders records as tables for requests that accept nothing better."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def single(self, request: Request, kind: Kind, record: Record) -> bytes | None:
        """Return one record as a table, None when the request wants the object."""
        if not wants_table(request):
            return None
        return self._render(request, kind, [record], {"resourceVersion": str(record.revision)})

    def page(self, request: Request, kind: Kind, page: Page) -> bytes | None:
        """Return a page as a table, None when the request wants objects."""
        if not wants_table(request):
            return None
        return self._render(request, kind, page.records, list_meta(page))

    def event_renderer(self, request: Request, kind: Kind) -> Render | None:
        """Return how to render watch events as tables, None when the request wants objects."""
        if not wants_table(request):
            return None

        def render(type: str, record: Record) -> bytes:
            meta = {"resourceVersion": str(record.revision)}
            return encode_event(type, self._render(request, kind, [record], meta))

        return render

    def _render(self, request: Request, kind: Kind, records: list[Record], meta: dict[str, Any]) -> bytes:
        printer = printer_of(kind)
        now = self._store.clock.now()
        include = request.query.get("includeObject", "Metadata")
        rows = []
        for record in records:
            obj = record.object()
            row: dict[str, Any] = {"cells": printer.cells(obj, now)}
            if include == "Metadata":
                row["object"] = {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": obj["metadata"],
                }
            elif include == "Object":
                row["object"] = obj
            rows.append(row)
        definitions = [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in printer.columns
        ]
        return msgspec.json.encode(
            {**TABLE, "metadata": meta, "columnDefinitions": definitions, "rows": rows}
        )


def wants_table(request: Request) -> bool:
    """Tell whether a table is the first thing the request accepts."""
    return "as=Table" in request.accept.split(",")[0]


def printer_of(kind: Kind) -> Printer:
    """Return how a kind is printed."""
    if kind.custom is None:
        return PRINTERS.get(kind.group_resource, DEFAULT_PRINTER)
    if not kind.custom.columns:
        return DEFAULT_PRINTER
    columns = kind.custom.columns
    head = Column("Name", format="name")
    definitions = [Column(c.name, c.type, c.priority, description=c.description) for c in columns]
    return Printer((head, *definitions), lambda obj, now: _custom_cells(columns, obj, now))


def _custom_cells(columns: tuple[PrinterColumn, ...], obj: Json, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), *(_custom_cell(column, obj, now) for column in columns)]


def _custom_cell(column: PrinterColumn, obj: Json, now: float) -> Any:
    values = lookup(obj, column.json_path)
    if not values:
        return None
    value = values[0]
    if column.type == "date":
        return age(value, now)
    if column.type == "boolean":
        return bool(value)
    if column.type in ("integer", "number"):
        return value if isinstance(value, int | float) else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
