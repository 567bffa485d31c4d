# SPDX-License-Identifier: Apache-2.0
"""A model's repository, a catalog for it and a recipe, as an optimization developer has them."""

from __future__ import annotations

import importlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = """
    import functools

    def traced(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)
        return wrapper

    @traced
    def attend(query, key):
        return query @ key

    class Block:
        def forward(self, x):
            return x + 1

        def norm(self, x):
            return x / 2

    def late_name(x):
        return x
    """
SCRIPT = """
    from demo_model import layers

    def step(x):
        return layers.attend(x, x)

    if __name__ == "__main__":
        raise SystemExit("the script ran")
    """
CATALOG = """
    from dataclasses import dataclass, field

    from turbo_hydra import About, group, replace, wrap

    @dataclass
    class Options:
        mode: str = field(default="default", metadata={"help": "how it compiles"})
        lr: float = 0.1

    group("demo.attention", replace("demo_model.layers.attend", "demo_catalog_code.attend"),
          about=About(why="attention is slow", numerics="close"))
    group("demo.block", wrap("demo_model.layers.Block.forward", "demo_catalog_code.forward"),
          depends_on=("demo.attention",), options=Options)
    group("demo.norm", replace("demo_model.layers.Block.norm", "demo_catalog_code.norm"))
    group("demo.norm_again", replace("demo_model.Block.norm", "demo_catalog_code.other_norm"))
    group("demo.whole", replace("demo_model.layers.Block", "demo_catalog_code.Block"))
    group("demo.reaching", replace("demo_model.layers.late_name", "demo_reaching.norm"))
    group("demo.yaml", replace("yaml.safe_load", "demo_catalog_code.safe_load"))
    group("demo.step", wrap("__main__.step", "demo_catalog_code.step", late=True))
    """
SERVED = """
    from turbo_hydra import group, replace, wrap
    from turbo_hydra.compatibility import before_import, import_alias, optional_import, replace_import

    group("served.file", replace_import("demo_model.layers", source="demo_served_code.from_the_repository"))
    group("served.installed", replace_import("rich.filesize", source="demo_served_code.spaced"))
    group("served.own", replace_import("yaml", source="demo_served_code.spaced"))
    group("served.absent", optional_import("no_such_package", names=("call",)))
    group("served.alias", import_alias("demo_model", "demo_model.layers.late_name", "early_name"))
    group("served.noted", before_import("demo_model.layers", "demo_served_code.note"))
    group("served.broken", replace_import("demo_model.layers", source="demo_served_code.broken"))
    group("served.attend", replace("demo_model.layers.attend", "demo_catalog_code.attend"), depends_on=("served.file",))
    group("served.free", replace("demo_model.layers.late_name", "demo_catalog_code.attend"))
    group("served.rich", wrap("rich.filesize.decimal", "demo_catalog_code.attend"), depends_on=("served.installed",))
    group("served.early", wrap("demo_model.early_name", "demo_catalog_code.attend"), depends_on=("served.alias",))
    group("served.call", wrap("no_such_package.call", "demo_catalog_code.attend"), depends_on=("served.absent",))
    """
SERVED_CODE = """
    def from_the_repository(text, context):
        return (context.repository / "replace" / "layers.py").read_text()

    def spaced(text, context):
        return text.replace("def decimal(", "def decimal( ")

    def note(context):
        print("before", context.module)

    def broken(text, context):
        raise ValueError("it is broken")
    """
REACHING = """
    from demo_catalog_code import attend as fast

    def norm(self, x):
        return fast(x, x)
    """
CODE = """
    def attend(query, key):
        return key @ query
    """
RECIPE = """
    # SPDX-License-Identifier: Apache-2.0
    schema_version: turbo_hydra/recipe/v1
    kind: OptimizationRecipe
    metadata: {id: model.demo, version: "1.0.0", description: a demonstration}
    model: {name: demo}
    catalogs: [demo_catalog]
    compatibility: {dependencies: {PyYAML: ">=5"}}
    groups: {demo: {block: true, norm: off, step: true}}
    options: {demo: {block: {mode: fast}}}
    """


@dataclass(frozen=True)
class Project:
    """Where everything is."""

    repo: Path
    recipe: Path
    output: Path

    @property
    def commit(self) -> str:
        """The repository's HEAD."""
        return self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments: str) -> str:
        """Run git in the repository."""
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", str(self.repo), *identity, *arguments], check=True, capture_output=True, text=True
        ).stdout

    def edit(self, old: str, new: str, file: str = "demo_model/layers.py") -> None:
        """Change the model and commit."""
        path = self.repo / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        self.git("commit", "-qam", "change")

    def rewrite(self, old: str, new: str) -> None:
        """Change the recipe."""
        text = self.recipe.read_text(encoding="utf-8")
        assert old in text
        self.recipe.write_text(text.replace(old, new), encoding="utf-8")


def write(path: Path, text: str) -> None:
    """Write a dedented text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")


@pytest.fixture(scope="session")
def demo_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the catalog importable: once, since groups are declared once a process."""
    folder = tmp_path_factory.mktemp("catalog")
    write(folder / "demo_catalog.py", CATALOG)
    write(folder / "demo_catalog_code.py", CODE)
    write(folder / "demo_reaching.py", REACHING)
    write(folder / "demo_served.py", SERVED)
    write(folder / "demo_served_code.py", SERVED_CODE)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def project(tmp_path: Path, demo_catalog: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Make a fresh repository with one commit, and a recipe."""
    monkeypatch.setenv("PYTHONPATH", str(demo_catalog))
    repo = tmp_path / "demo"
    write(repo / "demo_model" / "layers.py", MODEL)
    write(repo / "demo_model" / "__init__.py", "from .layers import Block, attend\n")
    write(repo / "train.py", SCRIPT)
    write(tmp_path / "recipe.yaml", RECIPE)
    found = Project(repo, tmp_path / "recipe.yaml", tmp_path / "out.yaml")
    found.git("init", "-q")
    found.git("add", "-A")
    found.git("commit", "-qm", "first")
    return found
