"""Reading manifests: order, Lists, and what is refused with its place."""

from pathlib import Path

import pytest

from karpenter.cli.manifests import MAX_DEPTH, Unreadable, read_manifests, read_text
from karpenter.cli.up.applying import tutorial_manifests


def test_lists_are_unfolded_and_empty_documents_skipped() -> None:
    """A stream may hold several objects, Lists of any kind, and nothing."""
    items = "[{apiVersion: v1, kind: A}, {apiVersion: v1, kind: B}]"
    lists = [f"{{kind: {kind}, items: {items}}}" for kind in ("List", "NodePoolList")]
    text = "\n---\n".join(["---", "", *lists])
    assert [d.obj["kind"] for d in read_text("stdin", text)] == ["A", "B", "A", "B"]


def test_folders_are_read_in_order_of_names(tmp_path: Path) -> None:
    """A folder stands for the manifests in it, by name; other files are left alone."""
    (tmp_path / "b.yaml").write_text("{apiVersion: v1, kind: B}")
    (tmp_path / "a.yml").write_text("{apiVersion: v1, kind: A}")
    (tmp_path / "readme.md").write_text("no")
    assert [d.obj["kind"] for d in read_manifests([tmp_path])] == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("just text", "bad.yaml:1: not an object with apiVersion and kind"),
        ("\n- 1", "bad.yaml:2: not an object with apiVersion and kind"),
        ("{kind: Pod}", "bad.yaml:1: the object has no apiVersion"),
        ("apiVersion: v1\nkind: ''", "bad.yaml:1: the object has no kind"),
        ("apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}", "bad.yaml:3: Pod has no metadata.name"),
        ("{apiVersion: v1, kind: Pod, metadata: x}", "bad.yaml:1: Pod has no metadata.name"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_its_line(text: str, complaint: str) -> None:
    """The error names file, line and what is missing."""
    [document] = read_text("bad.yaml", text)
    with pytest.raises(Unreadable) as refused:
        document.require_named()
    assert str(refused.value) == complaint


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: ]", r"bad\.yaml:1: not YAML"),
        ("a: 1\nb: \tc: [", r"bad\.yaml:2: not YAML"),
        ("a: 1\na: 2", r"bad\.yaml:2: 'a' is written twice"),
        ("[" * (MAX_DEPTH + 1), r"bad\.yaml:1: nested deeper than"),
    ],
)
def test_what_is_not_yaml_is_refused_with_its_line(text: str, complaint: str) -> None:
    """The error names file and line."""
    with pytest.raises(Unreadable, match=complaint):
        list(read_text("bad.yaml", text))


def test_the_tutorial_is_a_node_class_a_pool_and_a_deployment_at_nothing() -> None:
    """What `karpenter up` starts with when it is given nothing."""
    documents = tutorial_manifests()
    assert [d.obj["kind"] for d in documents] == ["KWOKNodeClass", "NodePool", "Deployment"]
    assert documents[-1].obj["spec"]["replicas"] == 0
    for document in documents:
        document.require_named()
