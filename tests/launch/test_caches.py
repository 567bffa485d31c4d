# SPDX-License-Identifier: Apache-2.0
"""Folders that code is loaded from: private, shared by runs, refused where somebody else was there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.launch import builds, caches, private
from turbo_hydra.launch.builds import Builds

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def prepared(place: str | Path, cwd: str = "/", **variables: str) -> tuple[caches.Prepared, dict[str, str]]:
    environment = dict(variables)
    return caches.prepare({"caches": {"dir": str(place)}}, cwd, environment), environment


def test_caches_are_private_and_shared_by_runs(tmp_path: Path) -> None:
    told, first = prepared("kept", str(tmp_path))
    assert told.warnings == []
    assert prepared(tmp_path / "kept", "/elsewhere")[1] == first
    folder = Path(first["TRITON_CACHE_DIR"])
    assert (folder.name, folder.parents[1]) == ("triton", tmp_path / "kept")
    assert first["TORCHINDUCTOR_CACHE_DIR"] == str(folder.parent / "inductor")
    assert {mode(path) for path in (folder, folder.parent, tmp_path / "kept")} == {0o700}
    assert "python" in (folder.parent / "key.json").read_text()


def test_hip_has_folders_of_its_own(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    caches.prepare({"accelerator": "hcu", "caches": {"dir": str(tmp_path / "kept")}}, "/", environment)
    assert {"MIOPEN_CUSTOM_CACHE_DIR", "MIOPEN_USER_DB_PATH"} <= set(environment)
    assert "MIOPEN_CUSTOM_CACHE_DIR" not in prepared(tmp_path / "kept")[1]


def test_other_versions_devices_and_sources_have_another_key() -> None:
    found = caches.ingredients({})
    assert {"python", "torch", "turbo_hydra", "devices", "cpu", "sources"} <= set(found)
    keys = {caches.key({**found, name: "other"}) for name in found}
    assert len(keys | {caches.key(found)}) == len(found) + 1


def test_a_folder_that_others_could_write_to_is_closed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    private.private_folder(tmp_path / "open")
    assert mode(tmp_path / "open") == 0o700


def test_a_folder_whose_place_is_everybodys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(private.CacheRefused, match="everybody can replace"):
        private.private_folder(tmp_path / "open" / "mine")
    (tmp_path / "open").chmod(0o1777)  # as /tmp is
    private.private_folder(tmp_path / "open" / "mine")


def test_the_users_own_folders_win_and_are_made_absolute(tmp_path: Path) -> None:
    told, variables = prepared("kept", str(tmp_path), TRITON_CACHE_DIR="mine")
    assert told.warnings == []
    assert variables["TRITON_CACHE_DIR"] == str(tmp_path / "mine")
    assert "TRITON_CACHE_DIR" not in variables[caches.OURS]
    assert not list((tmp_path / "kept").glob("*/triton"))


def test_a_folder_of_the_users_that_others_can_write_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o777)
    told, _ = prepared("kept", str(tmp_path), TRITON_CACHE_DIR="mine")
    assert len(told.warnings) == 1
    assert "can be written by everybody" in told.warnings[0]


@pytest.mark.parametrize("planted", ["file", "link", pytest.param("foreign", marks=as_root)])
def test_a_planted_folder_is_refused_and_the_run_goes_on(tmp_path: Path, planted: str) -> None:
    place = tmp_path / "kept"
    (tmp_path / "other").mkdir()
    if planted == "file":
        place.write_text("in the way")
    elif planted == "link":
        place.symlink_to(tmp_path / "other")
    else:
        place.mkdir()
        os.chown(place, 12345, 12345)
    told, variables = prepared(place)
    assert len(told.warnings) == len(told.temporary) == len(caches.VARIABLES)
    assert all("runtime.caches.dir" in warning and str(place) in warning for warning in told.warnings)
    for variable in caches.VARIABLES:
        assert mode(Path(variables[variable])) == 0o700
        assert tmp_path not in Path(variables[variable]).parents
    told.remove()
    assert not any(Path(variables[variable]).exists() for variable in caches.VARIABLES)


@as_root
def test_a_planted_file_is_refused_wherever_it_lies(tmp_path: Path) -> None:
    _, variables = prepared(tmp_path / "kept")
    planted = Path(variables["TRITON_CACHE_DIR"], "deep", "kernel.so")
    planted.parent.mkdir()
    planted.write_bytes(b"\x7fELF")
    os.chown(planted, 12345, 12345)
    told, again = prepared(tmp_path / "kept")
    assert [str(planted) in warning for warning in told.warnings] == [True]
    assert again["TRITON_CACHE_DIR"] != variables["TRITON_CACHE_DIR"]
    assert again["TORCHINDUCTOR_CACHE_DIR"] == variables["TORCHINDUCTOR_CACHE_DIR"]
    told.remove()


def test_left_over_temporaries_are_removed_and_nothing_else(tmp_path: Path) -> None:
    folder = Path(prepared(tmp_path / "kept")[1]["TRITON_CACHE_DIR"])
    old = ("tmp.pid_17_x", "a.tmp", "tmpab12cd3_", "kernel.so", "notes.txt")
    for name in (*old, "new.tmp"):
        (folder / name).write_text("x")
    (folder / "tmp.pid_18_y").mkdir()
    (folder / "tmp.pid_18_y" / "inside").write_text("x")
    hours_ago = time.time() - 7200
    for name in (*old, "tmp.pid_18_y"):
        os.utime(folder / name, (hours_ago, hours_ago))
    prepared(tmp_path / "kept")
    assert sorted(path.name for path in folder.iterdir()) == ["kernel.so", "new.tmp", "notes.txt"]


MOUNTS = """\
22 1 0:20 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /home rw - nfs4 server:/home rw
31 22 0:41 / /mnt/with\\040blank rw shared:1 - fuse.juicefs x rw
32 30 0:42 / /home/me/scratch rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/cache", "nfs4"),
        ("/homes/me", "ext4"),
        ("/home/me/scratch/cache", "xfs"),
        ("/mnt/with blank/x", "fuse.juicefs"),
        ("/", "ext4"),
    ],
)
def test_the_file_system_of_a_path(tmp_path: Path, path: str, kind: str) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS)
    assert private.filesystem(Path(path), table) == kind
    assert private.filesystem(Path(path), tmp_path / "absent") == ""


def test_ranks_share_a_local_folder_and_split_one_on_a_network_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, variables = prepared(tmp_path / "kept", TORCH_EXTENSIONS_DIR="/mine")
    for rank in ("0", "1"):
        local = {**variables, "LOCAL_RANK": rank}
        caches.for_rank(local)
        assert local["TRITON_CACHE_DIR"] == variables["TRITON_CACHE_DIR"]
    # The disk under this test counts as one of the network now.
    monkeypatch.setattr(private, "NETWORK", frozenset({private.filesystem(tmp_path)}))
    folders = set()
    for rank in ("0", "1"):
        network = {**variables, "LOCAL_RANK": rank}
        caches.for_rank(network)
        caches.for_rank(network)  # a rank's child does it again
        folders.add(network["TRITON_CACHE_DIR"])
        assert Path(network["TRITON_CACHE_DIR"]).parent == Path(variables["TRITON_CACHE_DIR"])
        assert network["TORCH_EXTENSIONS_DIR"] == "/mine"
    assert len(folders) == 2


def test_a_file_is_built_once_and_again_where_it_was_changed(tmp_path: Path) -> None:
    made: list[str] = []

    def build(path: Path) -> None:
        made.append(path.name)
        path.write_bytes(b"built")

    here = Builds(tmp_path / "builds")
    first = here.file("k.so", {"k.c": "int x;", "flags": "-O2"}, build)
    assert (first.read_bytes(), mode(first.parents[1])) == (b"built", 0o700)
    assert here.file("k.so", {"flags": "-O2", "k.c": "int x;"}, build) == first
    assert here.file("k.so", {"k.c": "int y;", "flags": "-O2"}, build) != first
    assert made == ["k.so", "k.so"]
    first.write_bytes(b"planted")
    assert here.file("k.so", {"k.c": "int x;", "flags": "-O2"}, build).read_bytes() == b"built"
    assert len(made) == 3


@as_root
def test_a_built_file_of_somebody_else_is_not_loaded(tmp_path: Path) -> None:
    here = Builds(tmp_path / "builds")
    first = here.file("k.so", {}, lambda path: path.touch())
    os.chown(first, 12345, 12345)
    again = here.file("k.so", {}, lambda path: path.touch())
    assert again.stat().st_uid == os.geteuid()


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        Builds(tmp_path / "builds").file("k.so", {}, fail)
    assert not [path for path in (tmp_path / "builds").rglob("*") if path.suffix != ".lock"]


def test_a_refused_folder_is_replaced_by_a_private_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "builds").write_text("in the way")
    here = Builds(tmp_path / "builds")
    try:
        assert here.file("k.so", {}, lambda path: path.touch()).exists()
        assert tmp_path not in here.folder.parents
    finally:
        private.remove(here.folder)
    assert "built files" in caplog.text


BUILDING = """
import pathlib, sys
from turbo_hydra.launch.builds import Builds
def build(path):
    with open(sys.argv[2], "a") as log: log.write("built\\n")
    path.write_bytes(b"x" * 1000)
print(Builds(pathlib.Path(sys.argv[1])).file("k.so", {"k": "v"}, build).stat().st_size)
"""


@pytest.mark.slow
def test_eight_processes_build_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BUILDING, str(tmp_path / "builds"), str(tmp_path / "log")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert [process.communicate(timeout=120)[0] for process in started] == ["1000\n"] * 8
    assert (tmp_path / "log").read_text() == "built\n"


@pytest.mark.slow
def test_ranks_find_the_folders_and_a_refused_one_ends_no_training(launching: Launching) -> None:
    place = launching.folder / "kept"
    place.write_text("in the way")
    job = launching.job(
        "import os\nprint(os.environ['TRITON_CACHE_DIR'], os.path.isdir(os.environ['TRITON_CACHE_DIR']))\n",
        ranks=2,
        runtime={"caches": {"dir": "kept"}, "logs": {"tee": "none"}},
    )
    ran = launching.run(job)
    assert ran.status == 0
    assert ran.err.count("TRITON_CACHE_DIR") == 1
    assert ran.log(0) == ran.log(1)
    folder, there = ran.log(0).split()
    assert there == "True"
    assert not Path(folder).exists()


COMPILING = """
import os
import shutil
import torch
from torch._dynamo.utils import counters

@torch.compile
def work(x):
    return torch.nn.functional.gelu(x * 3).softmax(-1)

work(torch.randn(16, 33))
print(counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"])
"""


@pytest.mark.slow
def test_a_later_run_compiles_nothing_again(launching: Launching) -> None:
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed, with which torch.compile builds for the CPU")
    job = launching.job(
        COMPILING, ranks=2, runtime={"caches": {"dir": str(launching.folder / "kept")}, "logs": {"tee": "none"}}
    )
    first = launching.run(job)
    assert first.status == 0, first.err
    # Ranks that begin at the same moment may both compile; together they leave one result.
    assert ["1", "0"] in [first.log(rank).split() for rank in (0, 1)], [first.log(rank) for rank in (0, 1)]
    again = launching.run(job)
    assert [again.log(rank).split() for rank in (0, 1)] == [["0", "1"]] * 2, again.err


def test_the_variable_of_builds_is_one_of_the_caches() -> None:
    assert builds.VARIABLE in caches.VARIABLES
