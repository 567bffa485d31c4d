# SPDX-License-Identifier: Apache-2.0
"""The evidence file: one text for one content, and nothing else is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.config import Evidence
from turbo_hydra.config.yaml_reader import Document
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.evidence import EvidenceRecord

HASH = "0" * 64
SOURCE, AST = f"source-v1:{HASH}", f"ast-v1:{HASH}"
CONF = Path(__file__).resolve().parents[2] / "conf" / "optimization"


def read(text: str) -> Evidence:
    return Evidence.from_document(Document(json.loads(text), "e.json"))


def test_the_form_is_that_of_the_design() -> None:
    record = EvidenceRecord("torch", "2.13.0", SOURCE, AST, (), "torch/optim/adamw.py")
    text = Evidence({"torch.optim.AdamW.__init__": (record,)}, {"openpi.fused_adamw": AST}, {"commit": None}).to_text()
    assert json.loads(text) == {
        "schema_version": "turbo_hydra/evidence/v1",
        "provenance": {"commit": None},
        "targets": {
            "torch.optim.AdamW.__init__": [
                {
                    "dist": "torch",
                    "version": "2.13.0",
                    "source": SOURCE,
                    "ast": AST,
                    "chain": [],
                    "file": "torch/optim/adamw.py",
                }
            ]
        },
        "replacements": {"openpi.fused_adamw": AST},
    }


def test_versions_are_in_the_order_of_their_numbers() -> None:
    versions = ["2.9.1", "2.14.1", "2.10.0", "2.7.1"]
    records = tuple(EvidenceRecord("torch", version, SOURCE, AST) for version in versions)
    found = json.loads(Evidence({"a.b": records}).to_text())["targets"]["a.b"]
    assert [item["version"] for item in found] == ["2.7.1", "2.9.1", "2.10.0", "2.14.1"]


words = st.text('abcxyz.é"\\', min_size=1, max_size=6)
hashes = st.sampled_from([HASH, "f" * 64])
records = st.builds(
    EvidenceRecord,
    dist=st.none() | words,
    version=st.none() | words,
    source=st.none() | hashes.map("source-v1:{}".format),
    ast=hashes.map("ast-v1:{}".format),
    chain=st.none() | st.lists(words, max_size=2).map(tuple),
    file=st.just("") | words,
    artifact=st.none() | hashes.map("artifact-v1:{}".format),
)
evidence = st.builds(
    Evidence,
    targets=st.dictionaries(words, st.lists(records, max_size=3, unique_by=str).map(tuple), max_size=3),
    replacements=st.dictionaries(words, hashes.map("ast-v1:{}".format), max_size=2),
    provenance=st.just({"commit": "abc", "distributions": [{"name": "torch", "version": "2"}]}) | st.just({}),
)


@given(evidence, st.randoms())
def test_equal_content_is_equal_bytes_whatever_its_order(found: Evidence, random: object) -> None:
    text = found.to_text()
    again = read(text)
    assert again.to_text() == text
    shuffled = Evidence(
        dict(sorted(((name, items[::-1]) for name, items in found.targets.items()), reverse=True)),
        dict(sorted(found.replacements.items(), reverse=True)),
        found.provenance,
    )
    assert shuffled.to_text() == text
    assert {name: set(items) for name, items in again.targets.items()} == {
        name: set(items) for name, items in found.targets.items()
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"schema_version": "turbo_hydra/evidence/v2"}, "'schema_version' must be 'turbo_hydra/evidence/v1'"),
        ({"target": {}}, "unknown key 'target'; did you mean 'targets'"),
        ({"targets": {"a": {}}}, "'targets.a' must be a list of records"),
        ({"targets": {"a": [{"sauce": "x"}]}}, "unknown key 'targets.a.0.sauce'; did you mean 'source'"),
        ({"targets": {"a": [{"ast": "ast-v2:0"}]}}, "'targets.a.0.ast' must be a ast-v1 hash"),
        ({"targets": {"a": [{"chain": "hidden"}]}}, "'targets.a.0.chain' must be a list of strings"),
        ({"replacements": {"a.b": "x"}}, "'replacements.a.b' must be an ast-v1 hash"),
        ({"provenance": {"sha": "x"}}, "unknown key 'provenance.sha'"),
    ],
)
def test_refusals(data: dict[str, object], said: str) -> None:
    with pytest.raises(OptimizationConfigError, match=said):
        read(json.dumps({"schema_version": "turbo_hydra/evidence/v1", **data}))


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not valid JSON"), ("[]", "expected an object"), ('{"a":1,"a":2}', "twice")]
)
def test_files_that_are_no_evidence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "e.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OptimizationConfigError, match=said):
        Evidence.read(path)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.evidence.json")), ids=lambda path: path.stem)
def test_shipped_evidence_is_in_canonical_form(path: Path) -> None:
    assert Evidence.read(path).to_text() == path.read_text("utf-8")


def test_torch_targets_that_ship_have_evidence_for_the_versions_in_use() -> None:
    for path in CONF.glob("*.evidence.json"):
        for target, found in Evidence.read(path).targets.items():
            versions = {record.version for record in found if record.dist == "torch"}
            if versions:
                assert versions >= {"2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.13.0", "2.14.1"}, target
