"""Scripts for `karpenter up`: what may be written, and what is refused."""

from pathlib import Path

import pytest

from karpenter.cli.up.script import TUTORIAL, Scale, ScriptError, Step, load_script


def test_the_tutorial_goes_up_twice_and_down_to_nothing() -> None:
    """The built-in script scales to 3, to 30 and to 0."""
    assert load_script("tutorial") is TUTORIAL
    assert [step.scale.replicas for step in TUTORIAL if step.scale] == [3, 30, 0]


def test_a_script_is_a_yaml_list_of_steps(tmp_path: Path) -> None:
    """Each step has a name and one change."""
    file = tmp_path / "script.yaml"
    file.write_text(
        "- {name: up, scale: {deployment: web/front, replicas: 7}}\n- {name: more, apply: more.yaml}\n"
    )
    assert load_script(str(file)) == (
        Step("up", scale=Scale("web/front", 7)),
        Step("more", apply="more.yaml"),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- {name: up, scael: {}}", "scael"),
        ("- {name: up}", "exactly one of scale and apply"),
        ("- {name: up, apply: a, scale: {deployment: d, replicas: 1}}", "exactly one of scale and apply"),
        ("- {name: up, scale: {deployment: d, replicas: many}}", "replicas"),
        ("{", "script"),
    ],
)
def test_a_bad_script_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    """Unknown fields, two changes in a step, and wrong types are named."""
    file = tmp_path / "script.yaml"
    file.write_text(text)
    with pytest.raises(ScriptError, match="script") as refused:
        load_script(str(file))
    assert complaint in str(refused.value)


def test_a_missing_script_is_refused() -> None:
    """A file that is not there is an error with its name."""
    with pytest.raises(ScriptError, match=r"nowhere\.yaml"):
        load_script("nowhere.yaml")
