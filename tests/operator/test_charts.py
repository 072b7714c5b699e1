"""What the charts say about the operator, held against the operator: its options, metrics and version."""

import json
import re
from pathlib import Path

import pytest
import yaml

import karpenter
from karpenter.base.virtualtime import run_virtual
from karpenter.operator.options import FEATURE_GATES, OPTIONS
from karpenter.testing.world import world

CHARTS = Path(__file__).parents[2] / "charts"
MAIN = CHARTS / "karpenter"
METRIC = re.compile(r"\b(?:karpenter|leader_election|controller_runtime|workqueue)_[a-z_]+\b")
SUFFIX = re.compile(r"_(bucket|count|sum)$")


@pytest.mark.parametrize("chart", ["karpenter", "karpenter-crd"])
def test_charts_have_the_version_of_the_program(chart: str) -> None:
    """Chart and image go together."""
    about = yaml.safe_load((CHARTS / chart / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == karpenter.__version__


@pytest.mark.parametrize("folder", ["karpenter/crds", "karpenter-crd/definitions"])
def test_charts_carry_the_very_definitions_that_the_operator_serves(folder: str) -> None:
    """All of them, and no copies that could fall behind."""
    shipped = {path.name: path.read_text() for path in (CHARTS / folder).glob("*.yaml")}
    served = Path(karpenter.__file__).parent / "apis" / "crds"
    assert shipped == {path.name: path.read_text() for path in served.glob("*.yaml")}


def test_settings_are_options_of_the_operator() -> None:
    """Every environment variable that the chart sets is one that is read, and every gate is there."""
    text = (MAIN / "templates" / "_settings.tpl").read_text()
    set_by_chart = set(re.findall(r"^([A-Z_]+): ", text, re.MULTILINE))
    assert set_by_chart
    assert set_by_chart <= {option.env for option in OPTIONS}
    gates = re.findall(r"(\w+)=", (MAIN / "templates" / "_helpers.tpl").read_text())
    assert set(gates) == set(FEATURE_GATES)
    values = yaml.safe_load((MAIN / "values.yaml").read_text())
    defaults = {name[0].upper() + name[1:]: on for name, on in values["settings"]["featureGates"].items()}
    assert defaults == FEATURE_GATES


def test_alerts_and_dashboards_ask_for_metrics_that_there_are() -> None:
    """A renamed metric would leave an alert that never fires."""
    alerts = yaml.safe_load((MAIN / "alerts.yaml").read_text())
    asked = [rule["expr"] for group in alerts for rule in group["rules"]]
    board = json.loads((MAIN / "dashboards" / "overview.json").read_text())
    asked += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    names = {
        SUFFIX.sub("", name) if "_bucket" in name else name for text in asked for name in METRIC.findall(text)
    }
    assert len(names) > 15

    async def offered() -> str:
        async with world() as w:
            await w.wait(30)
            return w.operator.metrics.render().decode()

    there = set(re.findall(r"^# HELP (\S+)", run_virtual(offered()), re.MULTILINE))
    assert names - there == set()


def test_the_role_of_those_who_ask_is_that_of_the_documentation() -> None:
    """`karpenter why` needs two verbs; the chart's Role grants these and no other."""
    template = (MAIN / "templates" / "role-why.yaml").read_text()
    page = (CHARTS.parent / "docs" / "why.md").read_text()
    (documented,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    shipped = yaml.safe_load("rules:" + template.partition("\nrules:")[2])
    assert shipped["rules"] == yaml.safe_load(documented)["rules"]
