# SPDX-License-Identifier: Apache-2.0
"""THIRD_PARTY_NOTICES.md names files that exist, and for each what it follows, at which commit, under which licence.

Which files have to be named is read from the code: a replacement that gives results of its own does what the function
that it stands for does; so does a kernel's path in plain PyTorch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LICENCES = {"Apache-2.0", "BSD-3-Clause", "MIT"}
COLUMNS = ["file", "follows", "project", "commit or version", "licence"]


def table(columns: list[str]) -> list[dict[str, str]]:
    """The rows of the table with these columns."""
    found: list[dict[str, str]] = []
    head: list[str] = []
    for line in (ROOT / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if head == columns and cells and not cells[0].startswith("---"):
            found.append(dict(zip(columns, cells, strict=True)))
        head = (head or cells) if cells else []
    assert found
    return found


def rows() -> list[dict[str, str]]:
    return table(COLUMNS)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"].strip("`"))
def test_a_row_is_complete_and_its_file_exists(row: dict[str, str]) -> None:
    file = ROOT / row["file"].strip("`")
    assert file.is_file()
    assert re.search(r"`[\w.]+`", row["follows"]), "the functions that it follows"
    assert re.match(r"\[[^]]+\]\(https://\S+\)", row["project"]), "the project, with its address"
    assert re.fullmatch(r"[0-9a-f]{40}|\d+\.\d+(\.\d+)?", row["commit or version"])
    assert row["licence"] in LICENCES


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"].strip("`"))
def test_the_functions_that_a_file_follows_are_in_it(row: dict[str, str]) -> None:
    text = (ROOT / row["file"].strip("`")).read_text(encoding="utf-8")
    for path, ours in re.findall(r"`([\w.]+)`(?: as `(\w+)`)?", row["follows"]):
        assert f"def {ours or path.rpartition('.')[2]}(" in text, path


def test_files_are_named_once_and_in_order() -> None:
    names = [row["file"] for row in rows()]
    assert names == sorted(set(names))


def calls(node: ast.AST, original: str) -> bool:
    """Whether the original is called, or handed to something that calls it."""
    made = [item for item in ast.walk(node) if isinstance(item, ast.Call)]
    taken = [part for call in made for part in (call.func, *call.args, *(item.value for item in call.keywords))]
    return any(isinstance(part, ast.Name) and part.id == original for part in taken)


def ways_out(body: Sequence[ast.stmt], original: str, called: bool = False) -> Iterator[bool]:
    """For each way out of a function: whether the original was called on it. A loop's body is taken to be executed."""
    for index, statement in enumerate(body):
        if isinstance(statement, ast.Return):
            yield called or calls(statement, original)
            return
        if isinstance(statement, ast.Raise):
            return
        if isinstance(statement, ast.If):
            for branch in (statement.body, statement.orelse):
                yield from ways_out([*branch, *body[index + 1 :]], original, called)
            return
        if isinstance(statement, (ast.With, ast.Try)):
            yield from ways_out([*statement.body, *body[index + 1 :]], original, called)
            return
        if not isinstance(statement, ast.FunctionDef):
            called = called or calls(statement, original)
    yield called


def factories(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions of a replacement's original: `f(original, options)`, and what is handed to `redecorated`."""
    functions = [item for item in ast.walk(tree) if isinstance(item, ast.FunctionDef) and item.args.args]
    yield from (item for item in functions if item in tree.body and item.args.args[0].arg == "original")
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "redecorated":
            names = [part.id for part in call.args[1:] if isinstance(part, ast.Name)]
            yield from (item for item in functions if item.name in names)


def returned(factory: ast.FunctionDef) -> set[str]:
    values = [item.value for item in ast.walk(factory) if isinstance(item, ast.Return)]
    return {value.id for value in values if isinstance(value, ast.Name)}


def computes_by_itself(text: str) -> bool:
    """Whether a replacement in a file has a result that is not the original's."""
    return not all(
        called
        for factory in factories(ast.parse(text))
        for made in factory.body
        if isinstance(made, ast.FunctionDef) and made.name in returned(factory)
        for called in ways_out(made.body, factory.args.args[0].arg)
    )


FOLLOWING = """
def forward(original, options):
    def forward(self, x):
        if unfit(x):
            fallback("no")
            return original(self, x)
        return kernel(self, x)
    return forward
"""
PASSING_ON = """
def forward(original, options):
    last = Last()
    def forward(self, x):
        if unfit(x):
            raise ValueError
        with settings:
            return last.get(lambda: original(self, x))
    return forward
"""


DECORATED = """
def forward(original, options):
    def make(inner):
        def forward(self, x):
            return kernel(x) if fits(x) else None
        return forward
    return redecorated(original, make)
"""


@pytest.mark.parametrize(
    ("text", "found"), [(FOLLOWING, True), (DECORATED, True), (PASSING_ON, False), ("x = 1", False)]
)
def test_a_replacement_that_computes_by_itself_is_recognised(text: str, found: bool) -> None:
    assert computes_by_itself(text) is found


def test_each_file_that_does_what_another_projects_function_does_is_named() -> None:
    package = ROOT / "turbo_hydra" / "catalogs"
    # What the groups of tiny_vla stand for was written here.
    files = [path for path in package.rglob("*.py") if package / "models" / "tiny_vla" not in path.parents]
    following = {path for path in files if computes_by_itself(path.read_text(encoding="utf-8"))}
    plain = {path for path in (ROOT / "kernels").glob("*.py") if re.search(r"def \w+_plain\(", path.read_text("utf-8"))}
    named = {row["file"].strip("`") for row in rows()}
    missing = sorted({str(path.relative_to(ROOT)) for path in following | plain} - named)
    assert missing == [], "add a row to THIRD_PARTY_NOTICES.md: which function of which project, at which version"
    assert len(plain) > 5
    assert len(following) > 5


def test_each_file_of_kernels_says_which_published_method_it_is() -> None:
    methods = table(["kernels", "method", "published"])
    names = [row["kernels"].strip("`") for row in methods]
    assert names == sorted(set(names))
    assert [name for name in names if not (ROOT / name).is_file()] == []
    assert all("](https://arxiv.org/abs/" in row["published"] for row in methods)
    written = {path for path in (ROOT / "kernels").glob("*.py") if re.search(r"^@jit$", path.read_text("utf-8"), re.M)}
    # What kernels are written with, sums over many tensors or programs, lists of tiles: the files that use them tell.
    parts = {
        "kernels/clip_norm.py",
        "kernels/language.py",
        "kernels/multi_tensor.py",
        "kernels/partial_sums.py",
        "kernels/prefix_mask.py",
    }
    assert {str(path.relative_to(ROOT)) for path in written} - set(names) <= parts
