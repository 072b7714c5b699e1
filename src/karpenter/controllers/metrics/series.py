"""Gauges whose series come and go with the objects they are about."""

from collections.abc import Mapping, Sequence

from prometheus_client import Gauge

from karpenter.base.metrics import Metrics


class Series:
    """A gauge that is replaced as a whole: what is not given again vanishes.

    The children are kept, because looking one up by its labels costs ten times what setting it does.
    """

    def __init__(self, metrics: Metrics, name: str, documentation: str, label_names: Sequence[str]) -> None:
        self._gauge = metrics.gauge(name, documentation, label_names)
        self._children: dict[tuple[str, ...], Gauge] = {}

    def replace(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Set exactly these series, by their label values in order."""
        children = self._children
        for gone in children.keys() - values.keys():
            del children[gone]
            if gone:
                self._gauge.remove(*gone)
        for key, value in values.items():
            child = children.get(key)
            if child is None:
                child = children[key] = self._gauge.labels(*key) if key else self._gauge
            child.set(value)
