# SPDX-License-Identifier: Apache-2.0
"""`turbo-train model=openpi`: what reaches OpenPI's script, and what is said when something is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given as examples
from hypothesis import strategies as st

from tests.openpi_use.conftest import Train, given
from turbo_hydra.launch.arguments import render

# The small script needs none of the groups, and their targets are not there.
PLAIN = ("optimization=common", "measure=off")
ROOT = Path(__file__).resolve().parents[2]


def described(kind: str, name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "conf" / kind / f"{name}.yaml").read_text(encoding="utf-8")))


def test_nothing_goes_to_the_script_that_the_user_did_not_set(train: Train, checkout: Path) -> None:
    done = train("model=openpi", "model.positional=[debug_pi05]", *PLAIN, OPENPI_REPO=str(checkout))
    assert done.returncode == 0, done.stderr
    # So OpenPI's own log interval of 100 and save interval of 1000 stay, and with them its batch size and all else.
    assert given(checkout) == ["debug_pi05"]


def test_what_the_user_sets_goes_to_the_script_as_it_is_and_nothing_else(train: Train, checkout: Path) -> None:
    done = train(
        *("model=openpi", f"model.repo={checkout}", "model.positional=[pi05_libero]", "model.args.exp_name=mine"),
        *("model.args.batch_size=32", "model.args.model.action_horizon=10", "model.args.overwrite=true", *PLAIN),
    )
    assert done.returncode == 0, done.stderr
    asked = ["--exp_name", "mine", "--batch_size", "32", "--model.action_horizon", "10", "--overwrite"]
    assert given(checkout) == ["pi05_libero", *asked]


@examples(
    st.lists(st.sampled_from(["debug_pi05", "pi05_libero"]), max_size=1),
    st.dictionaries(st.sampled_from(["exp_name", "batch_size", "num_train_steps", "log_interval"]), st.integers(1)),
)
def test_the_models_description_adds_no_argument(positional: list[str], args: dict[str, int]) -> None:
    model = {**described("model", "openpi"), "positional": positional, "args": args}
    assert render(model) == [*positional, *(text for name, value in args.items() for text in (f"--{name}", str(value)))]


def test_no_runtime_sets_anything_of_a_machine_or_of_a_model() -> None:
    for path in sorted((ROOT / "conf" / "runtime").glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        runtime = described("runtime", path.stem)
        values = (runtime.get("environment") or {}).get("set") or {}
        assert not [value for value in values.values() if "/" in str(value)], f"{path.name} names a folder"
        assert not {"PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD"} & set(values), path.name
        assert not [name for name in values if name.startswith(("OPENPI", "HF_", "NCCL_SOCKET", "GLOO_SOCKET"))]
        assert "openpi" not in text.lower(), path.name
        assert (runtime.get("network") or {}).get("interface") is None, path.name


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "'model.repo' is not set: give model.repo=..., or set the environment variable OPENPI_REPO"),
        (["model.repo=nowhere"], "'model.repo' is nowhere, and there is no folder"),
        (["model.repo=."], "'model.entry' is scripts/train_pytorch.py, and there is no file"),
    ],
)
def test_a_missing_checkout_is_one_sentence_before_anything_starts(
    train: Train, tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = train("model=openpi", *PLAIN, *arguments)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert said in line
    assert not list(tmp_path.rglob("ranks"))


def test_eight_hcus_compose_and_are_refused_where_there_are_none(train: Train, checkout: Path, tmp_path: Path) -> None:
    shown = train("model=openpi", f"model.repo={checkout}", "runtime=hcu_8card", "--cfg", "job", "--resolve")
    assert shown.returncode == 0, shown.stderr
    composed = yaml.safe_load(shown.stdout)
    assert (composed["runtime"]["ranks"], composed["runtime"]["accelerator"]) == (8, "hcu")
    assert (composed["model"]["entry"], composed["model"]["args"]) == ("scripts/train_pytorch.py", {})
    done = train("model=openpi", f"model.repo={checkout}", "runtime=hcu_8card", *PLAIN)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "runtime.accelerator=hcu needs 8 HCU devices for 8 ranks" in line
    assert not (checkout / "argv.json").exists()


def test_an_unknown_model_is_answered_with_the_list_of_models(train: Train) -> None:
    done = train("model=openpii")
    assert done.returncode == 2
    first, heading, *listed = done.stderr.splitlines()
    assert first == "turbo-train: there is no model=openpii; did you mean 'openpi'?"
    assert heading == "There are:"
    table = (ROOT / "docs" / "models" / "README.md").read_text(encoding="utf-8").splitlines()
    documented = [[cell.strip(" `") for cell in line.split("|")[1:3]] for line in table if line.startswith("| `")]
    assert [line.split(maxsplit=1) for line in listed] == documented
