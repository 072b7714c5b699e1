"""`karpenter validate`: findings with file and line, exit codes, and files that must not be read."""

import io
import json
from pathlib import Path

import pytest

from karpenter.cli.manifests import MAX_BYTES, Unreadable, read_text
from karpenter.cli.validate import validate_files

HEAD = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: NAME}\nspec:\n"
REF = "      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}\n"


def pool(*requirements: str, name: str = "p", spec: str = "", template: str = "") -> str:
    listed = "".join(f"        - {{{text}}}\n" for text in requirements) or "        []\n"
    body = f"  template:\n    spec:\n{REF}{template}      requirements:\n{listed}"
    return HEAD.replace("NAME", name) + spec + body


def run(tmp_path: Path, text: str, provider: str | None = "generic") -> tuple[int, list[str]]:
    file = tmp_path / "m.yaml"
    file.write_text(text)
    out = io.StringIO()
    code = validate_files([str(file)], provider=provider, out=out)
    return code, [line.removeprefix(f"{file}:") for line in out.getvalue().splitlines()]


def test_a_good_pool(tmp_path: Path) -> None:
    """Nothing is found in a pool that can buy."""
    code, lines = run(tmp_path, pool("key: kubernetes.io/arch, operator: In, values: [amd64]"))
    assert (code, lines) == (0, ["1 objects, 0 errors, 0 warnings"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            pool("key: a, operator: in, values: [x]"),
            "9: error: NodePool/p: spec.template.spec.requirements[0].operator",
        ),
        (
            pool("key: a, operator: Gt, values: [x]"),
            "8: error: NodePool/p: spec.template.spec.requirements",
        ),
        (pool(template="      expireAftr: 1h\n"), "did you mean expireAfter?"),
        (
            pool(template="      taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]\n"),
            "8: error: NodePool/p: spec.template.spec.taints[1]",
        ),
        (
            pool("key: a, operator: In, values: [x]", "key: a, operator: NotIn, values: [x]"),
            "10: error: NodePool/p: spec.template.spec.requirements[1]",
        ),
        (
            pool(
                "key: karpenter.kwok.sh/instance-cpu, operator: Gt, values: ['8']",
                "key: node.kubernetes.io/instance-type, operator: In, values: [c-1x-amd64-linux]",
            ),
            "none of 144 known instance types",
        ),
        (
            pool(spec="  disruption:\n    budgets: [{nodes: '0', schedule: 0 0 30 2 *, duration: 1h}]\n"),
            "6: error: NodePool/p: spec.disruption.budgets[0].schedule",
        ),
        (
            pool(spec="  disruption:\n    budgets: [{nodes: '0', schedule: 0 0 99 * *, duration: 1h}]\n"),
            "outside 1-31",
        ),
        ("apiVersion: karpenter.sh/v1\nkind: NodePol\nmetadata: {name: p}\n", "use karpenter.sh/v1 NodePool"),
        ("apiVersion: karpenter.sh/v1\nkind: NodePool\nspec: {}\n", "metadata.name"),
        ("kind: NodePool\n", "apiVersion"),
        ("- 1\n", "is not an object"),
        (
            "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: p}\nspec: {weight: 1,\n"
            "  ttlSecondsUntilExpired: 60}\n",
            "5: error: Provisioner/p: spec.ttlSecondsUntilExpired = 60",
        ),
    ],
)
def test_errors(tmp_path: Path, text: str, expected: str) -> None:
    """Each mistake is an error, at its line, with its field."""
    code, lines = run(tmp_path, text)
    assert code == 1
    assert any(expected in line and ": error: " in line for line in lines), lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (pool("key: kubernetes.io/arhc, operator: In, values: [x]"), "did you mean kubernetes.io/arch?"),
        (
            pool("key: kubernetes.io/arch, operator: In, values: [amd64, amd46]"),
            "9: warning: NodePool/p: spec.template.spec.requirements[0].values[1]",
        ),
        (
            pool("key: topology.kubernetes.io/zone, operator: In, values: [moon-1a]"),
            "may not know this place",
        ),
        (pool(spec="  disruption: {budgets: [{nodes: '0'}]}\n"), "never disrupted"),
        (pool() + "---\n" + pool(name="q"), "same weight as p"),
        (pool() + "---\n" + pool(), "already in"),
    ],
)
def test_warnings(tmp_path: Path, text: str, expected: str) -> None:
    """What may be meant is only a warning, and the exit code stays 0."""
    code, lines = run(tmp_path, text)
    assert code == 0
    assert any(expected in line and ": warning: " in line for line in lines), lines


def test_pools_of_different_weight_do_not_clash(tmp_path: Path) -> None:
    """A weight decides between equal pools."""
    assert run(tmp_path, pool() + "---\n" + pool(name="q", spec="  weight: 3\n"))[1][-1].endswith(
        "0 errors, 0 warnings"
    )


def overlay(name: str, *, weight: int = 1) -> str:
    """Return a NodeOverlay that sets the price of everything."""
    return (
        f"apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {{name: {name}}}\n"
        f"spec: {{requirements: [], price: '1', weight: {weight}}}\n"
    )


def test_overlays_that_conflict(tmp_path: Path) -> None:
    """Of two overlays of one weight for the same prices in one pool, the operator would reject the first."""
    both = f"{overlay('a')}---\n{overlay('b')}"
    code, lines = run(tmp_path, f"{pool()}---\n{both}")
    assert code == 1
    assert 'error: NodeOverlay/a: spec = "a": conflict with another overlay: b' in lines[0]
    assert "weight" in lines[0]
    assert len(lines) == 2
    assert run(tmp_path, both)[0] == 0  # no pool, nothing to meet in
    apart = f"{pool()}---\n{overlay('a')}---\n{overlay('b', weight=2)}"
    assert run(tmp_path, apart)[0] == 0


def test_lists_other_kinds_and_crds(tmp_path: Path) -> None:
    """Lists are taken apart, unknown kinds pass, and CRDs among the files are used."""
    crd = (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ts.x.io}\n"
        "spec:\n  group: x.io\n  names: {kind: T, plural: ts}\n  versions:\n  - name: v1\n"
        "    schema: {openAPIV3Schema: {type: object, properties: {a: {type: integer}}}}\n"
    )
    objects = (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}\n"
        "- apiVersion: x.io/v1\n  kind: T\n  metadata: {name: t}\n  a: text\n"
    )
    code, lines = run(tmp_path, f"{crd}---\n{objects}")
    assert code == 1
    assert lines[0].startswith("18: error: T/t: a = ")
    assert len(lines) == 2


def test_json_output(tmp_path: Path) -> None:
    """The findings come as a list of objects with file, line, field, value, problem and fix."""
    file = tmp_path / "m.yaml"
    file.write_text(pool("key: a, operator: in, values: [x]"))
    out = io.StringIO()
    assert validate_files([str(tmp_path)], provider=None, out=out, output="json") == 1
    (finding,) = json.loads(out.getvalue())
    assert finding["line"] == 9
    assert finding["value"] == "in"
    assert set(finding) == {"file", "line", "severity", "object", "field", "value", "problem", "fix"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "not YAML"),
        ("a: !!python/object:os.system x", "cannot be used"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("a: &a [*a]", "deeper"),
        ("a: 1\na: 2", "written twice"),
        ("? [1]\n: 2", "a key must be text"),
        (
            "\n".join(
                ["a0: &a0 [x]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]
            ),
            "aliases",
        ),
    ],
)
def test_hostile_text_is_refused(text: str, problem: str) -> None:
    """Bombs, cycles, deep nesting and foreign tags end in an error, quickly."""
    with pytest.raises(Unreadable, match=problem):
        list(read_text("f.yaml", text))


def test_unreadable_files(tmp_path: Path) -> None:
    """A missing, a huge and a binary file give exit code 2, and so does an unknown catalogue."""
    assert validate_files([str(tmp_path / "none")], provider=None, out=io.StringIO()) == 2
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"#" * (MAX_BYTES + 1))
    assert validate_files([str(huge)], provider=None, out=io.StringIO()) == 2
    huge.write_bytes(b"\xff\xfe")
    assert validate_files([str(huge)], provider=None, out=io.StringIO()) == 2
    huge.write_text("")
    assert validate_files([str(huge)], provider="moon", out=io.StringIO()) == 2
    assert validate_files([str(huge)], provider=None, out=io.StringIO()) == 0
