# SPDX-License-Identifier: Apache-2.0
"""Files are read as Hydra reads them, and stricter."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from turbo_hydra.config.yaml_reader import parse_yaml, read_yaml
from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError


def test_a_key_written_twice_is_refused_with_both_lines() -> None:
    text = "groups:\n  tiny_vla:\n    fused: true\n    other: true\n    fused: false\n"
    with pytest.raises(OptimizationConfigError, match=r"f\.yaml:5: 'groups\.tiny_vla\.fused' .* first on line 3"):
        parse_yaml(text, "f.yaml")


def test_a_key_written_twice_at_the_top_is_refused() -> None:
    with pytest.raises(OptimizationConfigError, match=r"f:3: 'strict' is written twice, first on line 1"):
        parse_yaml("strict: true\nonly: null\nstrict: false\n", "f")


def test_the_same_name_under_two_parents_is_no_repeat() -> None:
    assert parse_yaml("a: {x: 1}\nb: {x: 2}\n", "f").data == {"a": {"x": 1}, "b": {"x": 2}}


def test_lines_of_keys_and_of_list_items_are_known() -> None:
    document = parse_yaml("a: 1\nb:\n  c:\n    - x\n    - y\n", "f")
    assert document.place(("b", "c", "1")) == "f:5"
    assert document.place(("b", "c", "unknown")) == "f:3"
    assert document.place(("nowhere",)) == "f"


@pytest.mark.parametrize(
    "text",
    [
        "1e-3",
        "1.5",
        ".5",
        ".5e3",
        ".5e-3",
        "-.5",
        "1_000",
        "off",
        "No",
        "on",
        "2024-01-01",
        "0x10",
        "null",
        "~",
        "12:30",
        "1.2.3",
        "1e3",
    ],
)
def test_scalars_mean_what_they_mean_to_omegaconf(text: str) -> None:
    assert parse_yaml(f"key: {text}", "f").data["key"] == OmegaConf.create(f"key: {text}").key


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_that_python_prints_is_a_number(value: float) -> None:
    assert parse_yaml(f"key: {value!r}", "f").data["key"] == value


@pytest.mark.parametrize(("text", "said"), [("", "found nothing"), ("- a\n", "found a list"), ("word", "found str")])
def test_what_is_no_mapping_is_refused(text: str, said: str) -> None:
    with pytest.raises(OptimizationConfigError, match=said):
        parse_yaml(text, "f")


def test_bad_yaml_is_one_sentence_with_its_line() -> None:
    with pytest.raises(OptimizationConfigError, match=r"^f\.yaml:3: not valid YAML: [^\n]*$"):
        parse_yaml("a: 1\nb: [1,\n", "f.yaml")


def test_tags_that_make_objects_are_refused() -> None:
    with pytest.raises(OptimizationConfigError, match="not valid YAML"):
        parse_yaml("a: !!python/object/apply:os.getcwd []\n", "f")


def test_a_missing_file_and_a_folder_are_not_found(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(OptimizationConfigNotFoundError, match="cannot be read"):
            read_yaml(path)


def test_a_file_that_is_not_utf8_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(OptimizationConfigError, match="not UTF-8"):
        read_yaml(path)
