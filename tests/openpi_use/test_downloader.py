# SPDX-License-Identifier: Apache-2.0
"""The downloader of the public weights against a service that drops, truncates, lies and offers escaping names."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.openpi_use.bucket_server import Store, certificate, serving

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "openpi"
if str(EXAMPLE) not in sys.path:
    sys.path.insert(0, str(EXAMPLE))

from download_weights import run  # noqa: E402 - the example is a project of its own
from openpi_assets.bucket import Bucket, DownloadError  # noqa: E402

PREFIX = "checkpoints/pi05_base/"
ATTEMPTS = 3
BIG = random.Random(0).randbytes(300_000)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def store() -> Store:
    """Two files in folders, and a placeholder of an empty folder."""
    made = Store()
    made.objects = {f"{PREFIX}": b"", f"{PREFIX}params/d/big": BIG, f"{PREFIX}assets/norm_stats.json": b"{}"}
    return made


@pytest.fixture
def bucket(store: Store, tls: tuple[Path, Path]) -> Iterator[Bucket]:
    with serving(store, tls) as address:
        yield made(address, tls)


def made(address: str, tls: tuple[Path, Path]) -> Bucket:
    return Bucket("openpi-assets", base=address, ca_certs=str(tls[0]), backoff=0.001, attempts=ATTEMPTS, timeout=20)


def files(folder: Path) -> dict[str, bytes]:
    """What lies in the folder, parts left out."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".part"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def parts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.part"))


WHOLE = {"params/d/big": BIG, "assets/norm_stats.json": b"{}"}


def test_all_files_arrive_whole_in_their_folders(bucket: Bucket, tmp_path: Path) -> None:
    assert run(bucket, PREFIX, tmp_path / "new" / "folder") == 0
    assert files(tmp_path / "new" / "folder") == WHOLE
    assert not parts(tmp_path)


@pytest.mark.parametrize("page", [1, 2, 7])
def test_all_pages_of_the_listing_are_read(bucket: Bucket, store: Store, tmp_path: Path, page: int) -> None:
    store.page = page
    store.objects |= {f"{PREFIX}many/{number}": b"%d" % number for number in range(20)}
    assert run(bucket, PREFIX, tmp_path) == 0
    assert len(files(tmp_path)) == 22


def test_a_listing_that_goes_in_circles_ends(bucket: Bucket, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.loop, store.page = True, 1
    assert run(bucket, PREFIX, Path("never"), listing_only=True) == 1
    assert "a page that it has given before" in capsys.readouterr().err


def test_listing_writes_nothing(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    assert run(bucket, PREFIX, tmp_path, listing_only=True) == 0
    assert not list(tmp_path.iterdir())
    assert not store.requests


@pytest.mark.parametrize(
    "faults",
    [
        ["drop 0"],
        ["drop 100000", "drop 50000"],
        ["truncate 1000", "truncate 0"],
        ["status 503", "status 429"],
        ["drop 100000", "all"],
        ["drop 100000", "elsewhere"],
        ["drop 100000", "416"],
        ["garbage"],
        ["drop 100000", "garbage"],
        ["more"],
        ["drop 1"] * 10,  # each brings one byte more, so none of them counts as a failure in a row
    ],
    ids=" ".join,
)
def test_what_goes_wrong_on_the_way_is_mended(bucket: Bucket, store: Store, tmp_path: Path, faults: list[str]) -> None:
    del store.objects[f"{PREFIX}assets/norm_stats.json"]
    store.faults = list(faults)
    assert run(bucket, PREFIX, tmp_path) == 0
    assert files(tmp_path) == {"params/d/big": BIG}
    assert not parts(tmp_path)
    assert not store.faults


FAULT = st.one_of(
    st.sampled_from(["all", "elsewhere", "garbage", "more", "416", "status 500", "status 404"]),
    st.integers(0, 5000).map(lambda number: f"drop {number}"),
    st.integers(0, 5000).map(lambda number: f"truncate {number}"),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FAULT, max_size=12))
def test_whatever_the_service_does_a_file_is_whole_or_not_there(
    bucket: Bucket, store: Store, tmp_path_factory: pytest.TempPathFactory, faults: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    store.objects = {f"{PREFIX}x": BIG[:5000]}
    store.faults = list(faults)
    status = run(bucket, PREFIX, folder)
    assert files(folder) == ({"x": BIG[:5000]} if status == 0 else {})
    store.faults = []
    assert run(bucket, PREFIX, folder) == 0, "the same command goes on from what has arrived"
    assert files(folder) == {"x": BIG[:5000]}
    assert not parts(folder)


def test_a_later_call_asks_for_the_rest_only(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    del store.objects[f"{PREFIX}assets/norm_stats.json"]
    store.faults = ["truncate 200000", *["truncate 0"] * (ATTEMPTS + 1)]
    assert run(bucket, PREFIX, tmp_path) == 1
    assert files(tmp_path) == {}
    (part,) = parts(tmp_path)
    assert part.read_bytes() == BIG[:200000]
    store.requests.clear()
    assert run(bucket, PREFIX, tmp_path) == 0
    assert store.requests == [(f"{PREFIX}params/d/big", "bytes=200000-")]
    assert files(tmp_path) == {"params/d/big": BIG}


def test_what_arrived_of_an_object_that_has_changed_is_not_taken(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    store.objects = {f"{PREFIX}x": BIG}
    store.faults = ["truncate 200000", *["truncate 0"] * (ATTEMPTS + 1)]
    assert run(bucket, PREFIX, tmp_path) == 1
    store.objects = {f"{PREFIX}x": BIG[::-1]}
    store.listed = {f"{PREFIX}x": {"generation": "8"}}
    assert run(bucket, PREFIX, tmp_path) == 0
    assert files(tmp_path) == {"x": BIG[::-1]}


@pytest.mark.parametrize("size", [len(BIG) - 1, len(BIG) + 1, 0, 10 * len(BIG)])
def test_a_size_that_is_not_so_ends_without_a_file(
    bucket: Bucket, store: Store, tmp_path: Path, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    store.listed = {f"{PREFIX}params/d/big": {"size": str(size)}}
    assert run(bucket, PREFIX, tmp_path) == 1
    assert "params/d/big" not in files(tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert "given up after" in line
    assert len(store.requests) <= 2 * (ATTEMPTS + 2)


def test_a_hash_that_is_not_so_ends_without_a_file(
    bucket: Bucket, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.listed = {f"{PREFIX}params/d/big": {"md5Hash": "AAAAAAAAAAAAAAAAAAAAAA=="}}
    assert run(bucket, PREFIX, tmp_path) == 1
    assert "has not the hash that the bucket recorded" in capsys.readouterr().err
    assert "params/d/big" not in files(tmp_path)


@pytest.mark.parametrize("garbage", [False, True])
def test_objects_made_of_parts_are_verified_by_their_crc32c(
    bucket: Bucket, store: Store, tmp_path: Path, garbage: bool
) -> None:
    store.listed = {f"{PREFIX}params/d/big": {"md5Hash": None}}
    store.faults = ["", *["garbage"] * 10 * garbage]
    assert run(bucket, PREFIX, tmp_path) == int(garbage)
    assert ("params/d/big" in files(tmp_path)) is not garbage


def test_what_has_no_hash_is_not_downloaded(
    bucket: Bucket, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.objects = {f"{PREFIX}x": b"data"}
    store.listed = {f"{PREFIX}x": {"md5Hash": None, "crc32c": None}}
    assert run(bucket, PREFIX, tmp_path) == 1
    assert "cannot be verified" in capsys.readouterr().err
    assert not store.requests


@pytest.mark.parametrize(
    "name",
    [
        f"{PREFIX}../outside",
        f"{PREFIX}a/../../outside",
        f"{PREFIX}./x",
        f"{PREFIX}/etc/passwd",
        f"{PREFIX}a//b",
        f"{PREFIX}a\\..\\b",
        f"{PREFIX}a\x00b",
        f"{PREFIX}C:x",
        "/etc/passwd",
        "checkpoints/other/x",
        "",
    ],
)
def test_a_name_that_leads_out_of_the_folder_stops_everything_before_it_begins(
    bucket: Bucket, store: Store, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.extra = [{"name": name, "size": "4", "generation": "1", "md5Hash": "AAAAAAAAAAAAAAAAAAAAAA=="}]
    assert run(bucket, PREFIX, tmp_path / "folder") == 1
    assert "would lead out of the output folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert not store.requests


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"name": f"{PREFIX}params/d/big"}, "lists checkpoints/pi05_base/params/d/big twice"),
        ({"name": f"{PREFIX}params/d"}, "lists params/d as a file and as a folder of params/d/big"),
        ({"name": f"{PREFIX}x", "size": "many"}, "which is no object"),
        ({"name": f"{PREFIX}x", "size": None}, "which is no object"),
        ({"name": f"{PREFIX}x", "md5Hash": "x"}, "which is no object"),
    ],
)
def test_a_listing_that_contradicts_itself_is_told(
    bucket: Bucket, store: Store, item: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.extra = [{"size": "4", "generation": "1", "crc32c": "AAAAAA==", **item}]
    assert run(bucket, PREFIX, Path("never")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_link_in_the_folder_that_leads_out_of_it_is_not_followed(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "params").symlink_to(tmp_path / "outside")
    assert run(bucket, PREFIX, tmp_path / "folder") == 1
    assert "leads out of" in capsys.readouterr().err
    assert not list((tmp_path / "outside").iterdir())


def test_an_output_folder_that_is_a_link_itself_is_the_users_choice(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "folder").symlink_to(tmp_path / "disk")
    assert run(bucket, PREFIX, tmp_path / "folder") == 0
    assert files(tmp_path / "disk") == WHOLE


def test_a_finished_file_is_not_asked_for_again(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    assert run(bucket, PREFIX, tmp_path) == 0
    before = {path: path.stat() for path in tmp_path.rglob("*") if path.is_file()}
    store.requests.clear()
    assert run(bucket, PREFIX, tmp_path) == 0
    assert not store.requests
    assert {path: path.stat().st_mtime_ns for path in before} == {p: s.st_mtime_ns for p, s in before.items()}


@pytest.mark.parametrize("content", [b"mine", BIG[::-1], b""])
def test_a_file_of_the_users_is_never_overwritten(
    bucket: Bucket, tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "params" / "d" / "big"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    assert run(bucket, PREFIX, tmp_path) == 1
    assert "is there and is not the file of the bucket" in capsys.readouterr().err
    assert place.read_bytes() == content


def test_a_part_that_is_longer_or_other_than_the_file_is_thrown_away(
    bucket: Bucket, store: Store, tmp_path: Path
) -> None:
    store.objects = {f"{PREFIX}x": BIG, f"{PREFIX}y": BIG}
    (tmp_path / ".x.7.part").write_bytes(BIG + b"more")
    (tmp_path / ".y.7.part").write_bytes(b"other")
    assert run(bucket, PREFIX, tmp_path) == 0
    assert files(tmp_path) == {"x": BIG, "y": BIG}


def test_two_downloads_into_one_folder_do_not_mix(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import fcntl

    (tmp_path / "assets").mkdir()
    with open(tmp_path / "assets" / ".norm_stats.json.7.part", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert run(bucket, PREFIX, tmp_path) == 1
        assert "another process downloads" in capsys.readouterr().err


def test_a_disk_that_takes_no_more_is_told_and_what_arrived_stays(
    store: Store, tls: tuple[Path, Path], tmp_path: Path
) -> None:
    # A limit on the size of files is what a process of its own can have of a full disk.
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        f"sys.path.insert(0, {str(EXAMPLE)!r})\n"
        "from pathlib import Path; from download_weights import run; from openpi_assets.bucket import Bucket\n"
        f"sys.exit(run(Bucket('b', base=sys.argv[1], ca_certs={str(tls[0])!r}), {PREFIX!r}, Path({str(tmp_path)!r})))"
    )
    with serving(store, tls) as address:
        done = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "download_weights: [Errno 27]" in done.stderr
        assert "Traceback" not in done.stderr
        assert files(tmp_path) == {"assets/norm_stats.json": b"{}"}
        assert run(made(address, tls), PREFIX, tmp_path) == 0
    assert files(tmp_path) == WHOLE


@pytest.mark.parametrize("faults", [[503], [500, 502, 429]])
def test_a_listing_is_asked_for_again(bucket: Bucket, store: Store, tmp_path: Path, faults: list[int]) -> None:
    store.listing_faults = list(faults)
    assert run(bucket, PREFIX, tmp_path) == 0


@pytest.mark.parametrize(("status", "said"), [(404, "answers 404"), (302, "answers 302"), (403, "answers 403")])
def test_what_no_repetition_mends_is_told_at_once(
    bucket: Bucket, store: Store, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.listing_faults = [status, status]
    assert run(bucket, PREFIX, Path("never")) == 1
    assert said in capsys.readouterr().err
    assert store.listing_faults == [status]


def test_nothing_below_the_name_is_told(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(bucket, "checkpoints/none/", Path("never")) == 1
    assert "there is nothing at gs://openpi-assets/checkpoints/none/" in capsys.readouterr().err


def test_one_object_lies_in_the_folder_itself(bucket: Bucket, store: Store, tmp_path: Path) -> None:
    store.objects = {"a/tokenizer.model": b"model", "a/tokenizer.model.old": b"old"}
    assert run(bucket, "a/tokenizer.model", tmp_path) == 0
    assert files(tmp_path) == {"tokenizer.model": b"model"}


def test_only_https_is_spoken(store: Store, tls: tuple[Path, Path]) -> None:
    with serving(store, None) as address, pytest.raises(DownloadError, match="is not https"):
        Bucket("openpi-assets", base=address)
    with serving(store, tls) as address:
        stranger = Bucket("openpi-assets", base=address, backoff=0.001, attempts=1, timeout=20)
        with pytest.raises(DownloadError, match="cannot be reached"):
            stranger.assets(PREFIX)  # nobody vouches for the certificate


def test_the_command_says_what_it_takes(tmp_path: Path) -> None:
    script = [sys.executable, str(EXAMPLE / "download_weights.py")]
    environment = {**os.environ, "PYTHONSAFEPATH": ""}
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "--output-dir" in done.stderr
    done = subprocess.run([*script, "--help"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0
    assert "pi05_base" in done.stdout
