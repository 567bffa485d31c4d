# SPDX-License-Identifier: Apache-2.0
"""The optimization config: what is accepted, what is refused, and what the engine gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.config import OptimizationConfig
from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError
from turbo_hydra.engine.evidence import EvidenceRecord

HEADER: dict[str, Any] = {"schema_version": "turbo_hydra/optimization-config/v1", "kind": "OptimizationConfig"}
HASH = "0" * 64


def config(**data: Any) -> OptimizationConfig:
    return OptimizationConfig.from_mapping({**HEADER, **data})


def written(folder: Path, text: str) -> Path:
    path = folder / "optimization.yaml"
    path.write_text(
        "schema_version: turbo_hydra/optimization-config/v1\nkind: OptimizationConfig\n" + text, encoding="utf-8"
    )
    return path


def test_defaults() -> None:
    found = config()
    assert (found.enabled, found.only, found.disable, found.strict, found.shadow_calls) == (True, None, (), False, 0)
    assert found.count_calls == "auto"
    assert found.compatibility.allow_dirty


@pytest.mark.parametrize("value", [True, "true", "on", "yes", "True", "ON"])
def test_toggles_that_are_on(value: object) -> None:
    assert config(groups={"a": {"b": value}}).groups == {"a.b": True}


@pytest.mark.parametrize("value", [False, "false", "off", "no", "OFF"])
def test_toggles_that_are_off(value: object) -> None:
    assert config(groups={"a": {"b": value}}).groups == {"a.b": False}


@pytest.mark.parametrize("value", ["maybe", 0, 1, "", 1.0, {"enabled": True}, [True], "all_off"])
def test_toggles_that_are_refused(value: object) -> None:
    with pytest.raises(OptimizationConfigError, match=r"'groups\.a\.b' must be true or false"):
        config(groups={"a": {"b": value}})


def test_a_toggle_of_null_says_nothing_about_the_group() -> None:
    assert config(groups={"a": {"b": None, "c": True}}).groups == {"a.c": True}


@pytest.mark.parametrize("groups", [{"a": "all_off"}, {"a": True}, [], {"a.b": {"c": True}}, {"a": {"b-c": True}}])
def test_groups_have_two_levels(groups: object) -> None:
    with pytest.raises(OptimizationConfigError, match="groups"):
        config(groups=groups)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"stric": True}, "unknown key 'stric'; did you mean 'strict'?"),
        ({"shadow": {"call": 1}}, "unknown key 'shadow.call'; did you mean 'calls'?"),
        ({"metadata": {"name": "x"}}, "unknown key 'metadata.name'"),
        ({"compatibility": {"commit": "x"}}, "unknown key 'compatibility.commit'; did you mean 'commits'?"),
        ({"model": {"nam": "x"}}, "unknown key 'model.nam'; did you mean 'name'?"),
        ({"disable": "a.b"}, r"'disable' must be a list of strings \(write \[a.b\]\)"),
        ({"only": [1]}, "'only.0' must be a string, found 1"),
        ({"strict": "maybe"}, "'strict' must be true or false"),
        ({"shadow": {"calls": -1}}, "'shadow.calls' must be a whole number, 0 or more"),
        ({"shadow": {"calls": True}}, "'shadow.calls' must be a whole number"),
        ({"count_calls": "always"}, "'count_calls' must be one of auto, off"),
        ({"catalogs": ["a b"]}, "'catalogs' must be a list of module names"),
        ({"compatibility": {"dependencies": {"torch": 2.7}}}, r"'compatibility.dependencies.torch' .*\(quote it\)"),
        ({"compatibility": {"backends": ["cdua"]}}, "'compatibility.backends' names 'cdua', .*; did you mean 'cuda'?"),
        ({"compatibility": {"backends": ["rocm"]}}, "'compatibility.backends' names 'rocm', .*; known: cpu, cuda, hcu"),
        ({"compatibility": {"backends": ["auto"]}}, "'compatibility.backends' names 'auto'"),
        ({"compatibility": {"backends": "cuda"}}, r"'compatibility.backends' must be a list .* \(write \[cuda\]\)"),
        ({"options": {"a": {"b": {"c": {1, 2}}}}}, "'options.a.b.c' must be plain data"),
        ({"options": {"a": {"b": 3}}}, "'options.a.b' must be a mapping"),
        ({"evidence": "beside.json"}, "'evidence' must be an absolute path"),
        ({"schema_version": "turbo_hydra/optimization-config/v2"}, "'schema_version' must be"),
        ({"kind": None}, "'kind' must be 'OptimizationConfig'"),
        ({"extends": "common"}, "'extends' needs a file"),
        ({"defaults": ["x"]}, "a Hydra defaults list"),
    ],
)
def test_refusals(data: dict[str, Any], said: str) -> None:
    with pytest.raises(OptimizationConfigError, match=said) as caught:
        config(**data)
    assert "\n" not in str(caught.value)


def test_count_calls_off_may_be_written_without_quotes(tmp_path: Path) -> None:
    assert OptimizationConfig.from_file(written(tmp_path, "count_calls: off\n")).count_calls == "off"


def test_a_fault_in_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "groups:\n  a:\n    b: true\n    c: maybe\n")
    with pytest.raises(OptimizationConfigError, match=rf"{path}:6: 'groups.a.c'"):
        OptimizationConfig.from_file(path)


def test_a_kind_of_device_that_is_unknown_is_told_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "compatibility:\n  allow_dirty: true\n  backends: [cpu, gpu]\n")
    with pytest.raises(OptimizationConfigError, match=rf"{path}:5: 'compatibility.backends' names 'gpu'"):
        OptimizationConfig.from_file(path)


def test_a_header_that_is_missing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("groups: {}\n", encoding="utf-8")
    with pytest.raises(OptimizationConfigError, match=r"'schema_version' must be .* it is missing"):
        OptimizationConfig.from_file(path)


def test_the_selection_reads_the_evidence_beside_the_file(tmp_path: Path) -> None:
    record = {
        "dist": None,
        "version": None,
        "source": f"source-v1:{HASH}",
        "ast": None,
        "chain": "unseen",
        "file": "m.py",
    }
    other = {**record, "dist": "d", "version": "1.0", "source": None, "ast": f"ast-v1:{HASH}", "chain": ["a:b"]}
    evidence = {
        "schema_version": "turbo_hydra/evidence/v1",
        "provenance": {"commit": None},
        "targets": {"m.f": [record, other]},
        "replacements": {"a.b": f"ast-v1:{HASH}"},
    }
    (tmp_path / "e.json").write_text(json.dumps(evidence), encoding="utf-8")
    path = written(
        tmp_path,
        "evidence: e.json\nmodel: {name: m}\ngroups: {a: {b: true, c: off, d: on}}\noptions: {a: {b: {lr: 1e-3}}}\n"
        "compatibility: {commits: [abc], dependencies: {torch: '>=2.7'}, backends: [cuda, cpu], allow_dirty: false}\n"
        "only: ['a.*']\ndisable: [a.c]\nforce: [a.b]\nstrict: on\nshadow: {calls: 3}\nenabled: no\n",
    )
    found = OptimizationConfig.from_file(path).selection(repository=tmp_path, disable=("a.d",), accelerator="hcu")
    assert found.evidence == {
        "m.f": (
            EvidenceRecord(None, None, f"source-v1:{HASH}", None, None, "m.py"),
            EvidenceRecord("d", "1.0", None, f"ast-v1:{HASH}", ("a:b",), "m.py"),
        )
    }
    assert found.replacements == {"a.b": f"ast-v1:{HASH}"}
    assert found.groups == {"a.b": True, "a.c": False, "a.d": True}
    assert found.options == {"a.b": {"lr": 0.001}}
    assert (found.commits, found.dependencies, found.allow_dirty) == (("abc",), {"torch": ">=2.7"}, False)
    assert (found.backends, found.accelerator) == (("cuda", "cpu"), "hcu")
    assert (found.only, found.disable, found.force) == (("a.*",), ("a.c", "a.d"), ("a.b",))
    assert (found.strict, found.shadow_calls, found.enabled, found.repository) == (True, 3, False, tmp_path)


def test_a_missing_evidence_file_is_not_found(tmp_path: Path) -> None:
    found = OptimizationConfig.from_file(written(tmp_path, "evidence: none.json\n"))
    with pytest.raises(OptimizationConfigNotFoundError, match=r"none\.json cannot be read"):
        found.selection()


def test_force_and_disable_take_sequences_not_a_string() -> None:
    found = config(groups={"a": {"b": True}})
    with pytest.raises(OptimizationConfigError, match=r"force_groups takes a sequence .* found the string 'a\.b'"):
        found.selection(force="a.b")
    with pytest.raises(OptimizationConfigError, match="disable_groups takes a sequence"):
        found.selection(disable="a.b")


@pytest.mark.parametrize(
    ("force", "disable", "said"),
    [
        (["a.b"], ["a.b"], "both in force_groups and in disable_groups"),
        (["a.d"], [], "force_groups names 'a.d', which the config does not; did you mean"),
        (["a.c"], [], "force_groups names 'a.c', which is off"),
    ],
)
def test_force_that_cannot_be_meant(force: list[str], disable: list[str], said: str) -> None:
    with pytest.raises(OptimizationConfigError, match=said):
        config(groups={"a": {"b": True, "c": False}}).selection(force=force, disable=disable)


def test_importing_the_config_imports_neither_hydra_nor_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, turbo_hydra.config\n"
        "sys.exit(' '.join(m for m in ('torch', 'hydra', 'omegaconf', 'numpy') if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


names = st.from_regex(r"[a-z0-9_]{1,6}", fullmatch=True)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
configs = st.fixed_dictionaries(
    {
        "groups": st.dictionaries(names, st.dictionaries(names, st.booleans(), max_size=3), max_size=3),
        "options": st.dictionaries(
            names, st.dictionaries(names, st.dictionaries(names, plain, max_size=2), max_size=2), max_size=2
        ),
        "only": st.none() | st.lists(st.text(min_size=1, max_size=4), max_size=2),
        "disable": st.lists(st.text(min_size=1, max_size=4), max_size=2),
        "enabled": st.booleans(),
        "shadow": st.fixed_dictionaries({"calls": st.integers(0, 9)}),
        "count_calls": st.sampled_from(["auto", "off"]),
        "compatibility": st.fixed_dictionaries(
            {"backends": st.lists(st.sampled_from(["cpu", "cuda", "hcu"]), max_size=3, unique=True)}
        ),
        "metadata": st.fixed_dictionaries({"id": st.text(max_size=5), "description": st.text(max_size=5)}),
    }
)


@given(configs)
def test_a_config_survives_the_way_to_plain_data_and_back(data: dict[str, Any]) -> None:
    once = config(**data)
    text = json.dumps(once.to_dict())
    assert OptimizationConfig.from_mapping(json.loads(text)) == once
