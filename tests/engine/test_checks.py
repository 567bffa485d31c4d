# SPDX-License-Identifier: Apache-2.0
"""What is said of evidence: each outcome with its code, what was expected and found, and the place."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from turbo_hydra.engine.checks import Check, CheckContext, CompatibilityResult, check_evidence
from turbo_hydra.engine.declarations import Place
from turbo_hydra.engine.evidence import EvidenceRecord, Layer, LiveEvidence

HERE, ELSEWHERE = Place("lib.py", 3), Place("tool.py", 7)
OWN, OTHER, FOREIGN = (
    Layer("lib:own.<locals>.f", HERE),
    Layer("lib:other.<locals>.f", HERE),
    Layer("tool:f", ELSEWHERE),
)


def check(records: tuple[EvidenceRecord, ...], live: LiveEvidence, **installed: str) -> Check:
    return check_evidence("lab.it", "lib.f", records, live, installed.get)


def live(*layers: Layer, **settings: Any) -> LiveEvidence:
    return LiveEvidence(
        **{"source": "source-v1:a", "layers": layers, "place": HERE, "tree": lambda: "ast-v1:a", **settings}
    )


def record(*chain: str, **settings: Any) -> EvidenceRecord:
    return EvidenceRecord(**{"source": "source-v1:a", "ast": "ast-v1:a", "chain": chain, **settings})


def summary(found: Check) -> tuple[str, str, str, str, bool]:
    assert (found.group, found.target) == ("lab.it", "lib.f")
    return found.code, found.status, found.expected, found.actual, found.forceable


BINARY = live(source=None, place=None, reason="", artifact="artifact-v1:a", home="lib")


def test_binaries_that_are_those_recorded_pass() -> None:
    found = check((EvidenceRecord(artifact="artifact-v1:b"), EvidenceRecord(artifact="artifact-v1:a")), BINARY)
    assert summary(found) == ("evidence", "pass", "artifact-v1:a", "artifact-v1:a", False)
    assert found.message == "artifact-v1"


def test_other_binaries_are_a_change_and_say_which_were_recorded() -> None:
    found = check((EvidenceRecord(artifact="artifact-v1:b"), EvidenceRecord(artifact="artifact-v1:c")), BINARY)
    assert summary(found) == (
        "evidence.changed", "fail", "artifact-v1:b; artifact-v1:c", "artifact-v1:a", True,
    )  # fmt: skip
    assert found.message == "the binaries behind 'lib.f' are not those that the group was validated against"


def test_source_where_binaries_were_recorded_is_a_change() -> None:
    assert check((EvidenceRecord(artifact="artifact-v1:a"),), live()).code == "evidence.changed"


def test_what_cannot_be_read_says_why_and_what_was_recorded() -> None:
    found = check((record(), record(source="source-v1:b", ast=None)), live(source=None, tree=None, reason="it is C"))
    assert summary(found) == (
        "evidence.unreadable", "fail", "source-v1:a ast-v1:a; source-v1:b None", "it is C", True,
    )  # fmt: skip
    assert (found.message, found.place) == ("'lib.f' has no evidence: it is C", HERE)


def test_other_code_is_a_change_with_both_hashes() -> None:
    found = check((record(source="source-v1:b", ast="ast-v1:b"),), live())
    assert summary(found) == ("evidence.changed", "fail", "source-v1:b ast-v1:b", "source-v1:a ast-v1:a", True)
    assert found.message == "'lib.f' at lib.py:3 is not the code that the group was validated against"


@pytest.mark.parametrize(
    ("source", "ast", "how"),
    [("a", "a", "source-v1"), ("a", "b", "source-v1"), ("b", "a", "ast-v1")],
)
def test_a_match_says_by_what(source: str, ast: str, how: str) -> None:
    found = check((record(source=f"source-v1:{source}", ast=f"ast-v1:{ast}"),), live())
    assert summary(found) == (
        "evidence", "pass", f"source-v1:{source} ast-v1:{ast}", "source-v1:a", False,
    )  # fmt: skip
    assert (found.message, found.place) == (how, HERE)


def test_no_record_says_how_to_take_one() -> None:
    found = check((), live())
    assert summary(found) == ("evidence.missing", "fail", "evidence", "none recorded", True)
    assert found.message == "no evidence was recorded for 'lib.f'; take it with turbo-opt generate"


def test_a_version_that_nobody_recorded_names_those_that_were() -> None:
    records = (record(dist="torch", version="2.9.1"), record(dist="torch", version="2.13.0"))
    found = check(records, live(), torch="2.14.1")
    assert summary(found) == ("evidence.version", "fail", "torch 2.13.0, 2.9.1", "torch 2.14.1", True)
    assert "found torch 2.14.1; take this version's" in found.message
    assert check(records, live()).actual == "torch is not installed"
    assert check(records, live(), torch="2.13.0").status == "pass"


def test_the_foreign_layer_is_named_and_not_one_that_was_there() -> None:
    found = check((record(OWN.name),), live(OWN, FOREIGN))
    assert summary(found) == (
        "evidence.foreign_wrapper", "fail", OWN.name, f"{OWN.name} < {FOREIGN.name}", True,
    )  # fmt: skip
    assert found.message.startswith("'lib.f' is wrapped by tool:f (tool.py:7), which was not there")
    assert found.place == ELSEWHERE
    bare = check((record(),), live(Layer("tool:f", None)))
    assert (bare.expected, bare.place) == ("no layer", HERE), "the original's place, where the layer has none"
    assert bare.message.startswith("'lib.f' is wrapped by tool:f, which was not there")


def test_layers_that_are_gone_or_in_another_order_are_a_change() -> None:
    gone = check((record(OWN.name),), live())
    assert summary(gone) == ("evidence.changed", "fail", OWN.name, "no layer", True)
    assert "has lost layers" in gone.message
    swapped = check((record(OWN.name, OTHER.name),), live(OTHER, OWN))
    assert (swapped.code, swapped.actual) == ("evidence.changed", f"{OTHER.name} < {OWN.name}")
    assert check((record(), record(OWN.name)), live(OWN)).status == "pass", "any record may match"


def test_layers_that_nobody_saw_may_be_the_target_s_own_package_s() -> None:
    unseen = record()
    unseen = dataclasses.replace(unseen, chain=None)
    assert check((unseen,), live(OWN, OTHER)).status == "pass"
    assert check((unseen,), live(OWN, FOREIGN)).code == "evidence.foreign_wrapper"


def test_a_check_as_data_has_all_that_it_says() -> None:
    found = Check("a.b", "fail", "lab.it", "lib.f", "x", "y", HERE, True, "a sentence")
    assert found.to_dict() == {
        "code": "a.b",
        "status": "fail",
        "group": "lab.it",
        "target": "lib.f",
        "expected": "x",
        "actual": "y",
        "place": "lib.py:3",
        "forceable": True,
        "message": "a sentence",
    }
    assert Check("a.b", "pass").to_dict() == {
        "code": "a.b",
        "status": "pass",
        "group": None,
        "target": None,
        "expected": "",
        "actual": "",
        "place": None,
        "forceable": False,
        "message": "",
    }


def test_what_is_handed_to_a_check_and_back_cannot_be_changed() -> None:
    context = CheckContext("lab.it", None, frozenset(), {})
    for item, name in ((context, "group"), (CompatibilityResult(True), "compatible"), (Check("a", "pass"), "status")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(item, name, "other")
    assert CompatibilityResult(True).reason == ""


def test_only_versions_of_the_distribution_that_is_missing_are_named() -> None:
    records = (record(dist="torch", version="2.9.1"), record(dist="other", version="1.0"))
    found = check(records, live(), torch="2.14.1")
    assert found.expected == "torch 2.9.1"
    assert "has evidence for torch 2.9.1, found torch 2.14.1" in found.message
