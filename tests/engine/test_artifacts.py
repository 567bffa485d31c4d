# SPDX-License-Identifier: Apache-2.0
"""Evidence of entries without Python source, against values that were computed without the code under test."""

from __future__ import annotations

import hashlib
import importlib
import sysconfig
from pathlib import Path

import pytest

from turbo_hydra.engine.artifacts import artifact_hash, digest_of, recorded_binaries

# Name, version, RECORD with `<a>` for a hash of that letter, and the SHA-256 of "name==version" and the sorted lines
# "path,hash" of its libraries, joined by line feeds; the latter were computed by ten lines that share nothing with the
# package.
EXAMPLES = {
    "one extension": (
        "d",
        "1.0",
        "d/_c.so,<a>,10\nd/__init__.py,<b>,3\n",
        "71cabd48fd98c3e1366a3dafbef994a2487dbe7e128c7fff72b8269ae9030a11",
    ),
    "order of paths": (
        "d",
        "1.0",
        "d/z.so,<z>,1\nd/a.so,<a>,1\nd/m.so,<m>,1\n",
        "0e6533d430f2911798f17c6255c80aa737b3ebf0c7a9a208295bf076dfacb123",
    ),
    "a library with a version": (
        "d",
        "1.0",
        "d/lib/libx.so.1.2.3,<a>,1\n",
        "2c04add186b135536035cabfb630daf47dfd360010e23ff0542b1d7e9f1ed0d1",
    ),
    "an extension with an ABI tag": (
        "d",
        "2.1",
        "d/_c.cpython-311-x86_64-linux-gnu.so,<c>,1\n",
        "d33c7d57602d7fd6618d7b641e7324a8a853d5e099be7b0d5191fe0f4659b58d",
    ),
    "windows": (
        "d",
        "1.0",
        "d/_c.pyd,<a>,1\nd/x.dll,<b>,1\n",
        "45b952160a63d372b2d37226c640901c0d139694475219ac6334f1f9486b78ca",
    ),
    "mac": (
        "d",
        "1.0",
        "d/libx.dylib,<a>,1\nd/libx.1.dylib,<b>,1\n",
        "1313df704e156ed3e7cd5ffc2afabc9ece2291822f47b168511c2ebd882884b1",
    ),
    "a quoted path": (
        "d",
        "1.0",
        '"d/with, comma.so",<q>,1\n',
        "3beb7a78fd677961dc1a594a3f80dd055adec191588291b95fec62a5403cdda4",
    ),
    "lines that end as on windows": (
        "d",
        "1.0",
        "d/_c.so,<a>,1\r\nd/_d.so,<b>,1\r\n",
        "ea1539abc0a64507613a68e421ecc1b30a310e4d7d15ff698dde66baf4a81dff",
    ),
    "an entry without a hash": (
        "d",
        "1.0",
        "d/_c.so,<a>,1\nd/_d.so,,\n",
        "71cabd48fd98c3e1366a3dafbef994a2487dbe7e128c7fff72b8269ae9030a11",
    ),
    "names that only look like libraries": (
        "d",
        "1.0",
        "d/_c.so,<a>,1\nd/x.so.py,<b>,1\nd/y.sound,<c>,1\nd/so,<d>,1\n",
        "71cabd48fd98c3e1366a3dafbef994a2487dbe7e128c7fff72b8269ae9030a11",
    ),
    "a folder above": (
        "d",
        "1.0",
        "../../lib/libx.so,<u>,1\nd/_c.so,<a>,1\n",
        "ee332b17ac6acd55dc7512ddd45ec9163d55692a52bef6c23c68e70d7e2d7cb3",
    ),
    "a long name and a version with many parts": (
        "nvidia-x-cu12",
        "12.4.5.8",
        "nvidia/x/lib/libx.so.12,<n>,1\n",
        "80ff86c81895361a0c876b45c68f4eda8cd6df47e118ba84b6dfa5216f87f2fc",
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_hashes_are_those_computed_independently(name: str) -> None:
    dist, version, record, expected = EXAMPLES[name]
    for letter in "abcdmnquz":
        record = record.replace(f"<{letter}>", "sha256=" + letter * 43)
    assert digest_of(dist, version, recorded_binaries(record)) == f"artifact-v1:{expected}"


def test_a_record_without_libraries_has_none() -> None:
    assert recorded_binaries("d/__init__.py,sha256=x,1\nd/data.bin,sha256=y,2\n") == []
    assert recorded_binaries("") == []


def test_an_extension_that_no_distribution_installed_is_hashed_itself(tmp_path: Path) -> None:
    file = tmp_path / f"lonely{sysconfig.get_config_var('EXT_SUFFIX')}"
    file.write_bytes(b"not really code")
    content = hashlib.sha256(b"not really code").hexdigest()
    expected = hashlib.sha256(f"==\n{file.name},sha256={content}".encode()).hexdigest()
    assert artifact_hash("lonely", str(file)) == f"artifact-v1:{expected}"
    file.write_bytes(b"other code")
    assert artifact_hash("lonely", str(file)) != f"artifact-v1:{expected}"


@pytest.mark.parametrize("file", [None, "lonely.py", "lonely.so.py"])
def test_what_is_no_library_has_no_such_hash(file: str | None) -> None:
    assert artifact_hash("lonely", file) is None


def test_a_distribution_s_record_counts_and_not_the_one_file() -> None:
    yaml = pytest.importorskip("yaml._yaml", reason="PyYAML has no extension here")
    found = artifact_hash("yaml._yaml", yaml.__file__)
    assert found is not None
    assert found == artifact_hash("yaml._yaml", None) == artifact_hash("yaml", "elsewhere.so")
    metadata = importlib.import_module("importlib.metadata")
    lines = recorded_binaries(metadata.distribution("PyYAML").read_text("RECORD"))
    assert lines
    assert found == digest_of("PyYAML", metadata.version("PyYAML"), lines)
