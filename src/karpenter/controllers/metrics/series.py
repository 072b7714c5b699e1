"""Gauges whose series come and go with the objects they are about."""

from collections.abc import Mapping, Sequence

from karpenter.base.metrics import Metrics


class Series:
    """A gauge that is replaced as a whole: what is not given again vanishes."""

    def __init__(self, metrics: Metrics, name: str, documentation: str, label_names: Sequence[str]) -> None:
        self._gauge = metrics.gauge(name, documentation, label_names)
        self._known: set[tuple[str, ...]] = set()

    def replace(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Set exactly these series, by their label values in order."""
        for gone in self._known - values.keys():
            self._gauge.remove(*gone)
        for key, value in values.items():
            if key:
                self._gauge.labels(*key).set(value)
            else:
                self._gauge.set(value)
        self._known = {key for key in values if key}
