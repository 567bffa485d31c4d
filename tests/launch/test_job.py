# SPDX-License-Identifier: Apache-2.0
"""What is written of a run, and what is never written."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turbo_hydra.launch.job import Job, JobError, count, setting
from turbo_hydra.launch.secrets import HIDDEN, hide, hide_in_folder, hide_override, is_secret

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
GROUP = st.dictionaries(st.text(), PLAIN, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(model=GROUP, optimization=GROUP, measure=GROUP, name=st.text())
def test_a_job_comes_back_as_it_was(
    tmp_path: Path, model: dict[str, Any], optimization: dict[str, Any], measure: dict[str, Any], name: str
) -> None:
    job = Job(name, str(tmp_path), "/where", model=model, optimization=optimization, measure=measure)
    assert Job.read(job.write()) == job


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot read"), ("{", "is not JSON"), ("[]", "schema_version None"), ('{"schema_version": "x"}', "'x'")],
)
def test_a_file_that_is_no_job_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "job.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(JobError, match=words):
        Job.read(path)


def test_settings_that_are_no_plain_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="plain data"):
        Job("r", str(tmp_path), "/", model={"name": object()}).write()


def test_absent_and_null_settings_are_the_default() -> None:
    assert setting({"a": {"b": None}}, "a.b", 3) == setting({"a": None}, "a.b", 3) == setting({}, "a.b", 3) == 3
    assert setting({"a": {"b": 0}}, "a.b", 3) == 0
    for wrong in (True, "2", 1.5, -1):
        with pytest.raises(JobError, match=r"'runtime\.restarts'"):
            count({"restarts": wrong}, "restarts", 0)


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "PASSWORD", "DB_PASSWORD", "hf_token", "OPENAI_APIKEY"],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "KEYBOARD", "PATH", "SECRETARY", "OMP_NUM_THREADS"])
def test_names_that_only_look_alike(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("runtime.environment.set.HF_TOKEN=hf_abc", f"runtime.environment.set.HF_TOKEN={HIDDEN}"),
        ("+runtime.environment.set.HF_TOKEN='a b'", f"+runtime.environment.set.HF_TOKEN={HIDDEN}"),
        ("hydra.job.env_set.API_KEY=x", f"hydra.job.env_set.API_KEY={HIDDEN}"),
        ("runtime.environment.set={API_KEY:x,A:1}", f"runtime.environment.set={{API_KEY:{HIDDEN},A:1}}"),
        (
            "runtime.environment.set.TOKENIZERS_PARALLELISM=false",
            "runtime.environment.set.TOKENIZERS_PARALLELISM=false",
        ),
        ("model.args.key=value", "model.args.key=value"),
    ],
)
def test_values_in_overrides(override: str, shown: str) -> None:
    assert hide_override(override) == shown


def test_only_variables_are_hidden_in_a_config() -> None:
    data = {
        "model": {"args": {"key": "a", "token": "b"}},
        "runtime": {"environment": {"set": {"HF_TOKEN": "c", "PATH": "/bin"}, "unset": ["OLD_KEY"]}},
        "hydra": {"job": {"env_set": {"MY_SECRET": "d"}}, "task": ["runtime.environment.set.A_KEY=c"]},
    }
    assert hide(data) == {
        "model": {"args": {"key": "a", "token": "b"}},
        "runtime": {"environment": {"set": {"HF_TOKEN": HIDDEN, "PATH": "/bin"}, "unset": ["OLD_KEY"]}},
        "hydra": {
            "job": {"env_set": {"MY_SECRET": HIDDEN}},
            "task": [f"runtime.environment.set.A_KEY={HIDDEN}"],
        },
    }


def test_files_of_hydra_are_rewritten_only_where_they_hold_a_secret(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("runtime: {environment: {set: {HF_TOKEN: hf_1}, unset: []}}  # a comment\n")
    (tmp_path / "hydra.yaml").write_text("a: ${b}   # stays\n")
    hide_in_folder(tmp_path)
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["runtime"]["environment"]["set"] == {
        "HF_TOKEN": HIDDEN
    }
    assert (tmp_path / "hydra.yaml").read_text() == "a: ${b}   # stays\n"


def test_a_secret_reaches_the_script_and_no_file(launching: Launching) -> None:
    secret = "s3cr3t-value-of-the-test"
    hydra = launching.output / ".hydra"
    hydra.mkdir()
    (hydra / "overrides.yaml").write_text(yaml.safe_dump([f"runtime.environment.set.MY_TOKEN={secret}"]))
    job = launching.job(
        """
        import os
        print(len(os.environ["MY_TOKEN"]), os.environ["SHOWN"], "GONE" in os.environ, os.environ["INHERITED_KEY"])
        """,
        runtime={"environment": {"set": {"MY_TOKEN": secret, "SHOWN": "yes"}, "unset": ["GONE", "MY_TOKEN"]}},
    )
    ran = launching.run(job, GONE="1", INHERITED_KEY="k")
    assert (ran.status, ran.out) == (0, f"{len(secret)} yes False k\n")
    written = [path for path in launching.output.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert [path for path in written if secret in path.read_text()] == []
    assert json.loads(job.path.read_text())["runtime"]["environment"]["withheld"] == ["MY_TOKEN"]


def test_the_names_in_a_job_file_are_an_interface() -> None:
    assert [field.name for field in dataclasses.fields(Job)] == [
        "run_id",
        "output_dir",
        "cwd",
        "model",
        "runtime",
        "optimization",
        "optimization_config_path",
        "runtime_config_path",
        "measure",
        "command",
        "task",
    ]
    job = Job("r", os.sep + "out", "/")
    assert job.path == Path("/out/turbo/job.json")
    assert job.rank_folder(3) == Path("/out/turbo/ranks/3")
