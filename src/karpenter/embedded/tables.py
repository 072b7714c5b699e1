"""Tables, as kubectl prints them."""

from karpenter.embedded.kinds import Kind
from karpenter.embedded.requests import Request
from karpenter.embedded.store import Page, Record, Store
from karpenter.embedded.watching import Render


class Tables:
    def __init__(self, store: Store) -> None:
        self._store = store

    def single(self, request: Request, kind: Kind, record: Record) -> bytes | None:
        return None

    def page(self, request: Request, kind: Kind, page: Page) -> bytes | None:
        return None

    def event_renderer(self, request: Request, kind: Kind) -> Render | None:
        return None
