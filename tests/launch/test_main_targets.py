# SPDX-License-Identifier: Apache-2.0
"""Targets that the script itself defines: decorated functions, methods, classes that are pickled, tracebacks."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from turbo_hydra.engine.canonical import source_hash

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

DEFINITIONS = {
    "step": ('@bare\n@wrapped\ndef step(x: Undefined) -> Undefined:\n    return f"step {x}"\n', 2),
    "Model.forward": ('def forward(self, x):\n    return f"forward {x}"\n', 0),
    "Model.scale": ("@staticmethod\ndef scale(x):\n    return x\n", 0),
    "Model.name": ('@property\ndef name(self):\n    return "model"\n', 0),
    "fails": ("def fails():\n    return outer(0)\n", 0),
}
LAYERS = ["__main__:bare.<locals>.inner", "__main__:wrapped.<locals>.layer"]
SCRIPT = """
from __future__ import annotations

import functools
import pickle
import sys
import traceback

def wrapped(f):
    @functools.wraps(f)
    def layer(*args):
        return f"<{{f(*args)}}>"
    return layer

def bare(f):
    def inner(*args):
        return f"[{{f(*args)}}]"
    return inner

{step}
class Model:
{forward}
{scale}
{name}

def outer(x):
    return 1 / x  # the line that fails

{fails}
def main():
    model = pickle.loads(pickle.dumps(Model()))
    assert type(model) is Model and Model.__module__ == "__main__", Model.__module__
    assert pickle.loads(pickle.dumps(fails)) is fails
    print(step(1), "|", model.forward(2), "|", model.scale(3), "|", Model.scale(3), "|", model.name)
    try:
        fails()
    except ZeroDivisionError:
        traceback.print_exc()
    return 7

if __name__ == "__main__":
    if "--help" in sys.argv:
        raise SystemExit("unused")
    sys.exit(main())
"""
CATALOG = """
    from turbo_hydra import group, replace, wrap

    group("demo.step", wrap("__main__.step", "fastlib.around"))
    group("demo.model", replace("__main__.Model.forward", "fastlib.forward"),
          replace("__main__.Model.scale", "fastlib.scale"), replace("__main__.Model.name", "fastlib.name"))
    group("demo.fails", wrap("__main__.fails", "fastlib.through"))
"""
FAST = """
    def around(original, options):
        def step(*args):
            return "around " + original(*args)
        return step

    def through(original, options):
        def fails():
            return original()
        return fails

    def forward(self, x):
        return f"fast forward {x}"

    def scale(x):
        return x * 10

    def name(self):
        return "fast model"
"""


def script() -> str:
    parts = {name.rpartition(".")[2]: text for name, (text, _) in DEFINITIONS.items()}
    for name in ("forward", "scale", "name"):
        parts[name] = "".join(f"    {line}\n" for line in parts[name].splitlines())
    return SCRIPT.format(**parts)


def optimization(launching: Launching, **changes: str) -> dict[str, Any]:
    """A config with real evidence of all targets, of which `changes` are made."""
    targets = {
        f"__main__.{name}": [
            {
                "dist": None,
                "version": None,
                "source": source_hash(changes.get(name.replace(".", "_"), text)),
                "ast": None,
                "chain": LAYERS[:layers],
                "file": "script.py",
            }
        ]
        for name, (text, layers) in DEFINITIONS.items()
    }
    evidence = {
        "schema_version": "turbo_hydra/evidence/v1",
        "provenance": {},
        "targets": targets,
        "replacements": {},
    }
    path = launching.script(json.dumps(evidence), "demo.evidence.json")
    return {
        "schema_version": "turbo_hydra/optimization-config/v1",
        "kind": "OptimizationConfig",
        "metadata": {"id": "demo", "version": "1.0.0", "description": "for tests"},
        "catalogs": ["demo_catalog"],
        "evidence": str(path),
        "groups": {"demo": {"step": True, "model": True, "fails": True}},
    }


def test_what_the_script_defines_is_replaced_wherever_and_however_it_is_defined(launching: Launching) -> None:
    launching.script(CATALOG, "demo_catalog.py")
    launching.script(FAST, "fastlib.py")
    ran = launching.rank(launching.job(dedent(script()), optimization=optimization(launching)))
    assert ran.status == 7, ran.err
    assert ran.out.splitlines() == ["around [<step 1>] | fast forward 2 | 30 | 30 | fast model"]
    # The script's own lines, as under plain Python.
    assert "return outer(0)" in ran.err
    assert "return 1 / x  # the line that fails" in ran.err
    report = json.loads((ran.folder / "turbo" / "ranks" / "0" / "report.json").read_text())
    assert {entry["group"]: entry["status"] for entry in report["execution"]} == dict.fromkeys(
        ("demo.step", "demo.model", "demo.fails"), "applied"
    )
    members = [member for entry in report["execution"] for member in entry["members"]]
    assert {member["evidence"] for member in members} == {"source-v1"}
    assert [member["hits"]["replacement"] for member in members] == [1, 1, 2, 1, 1]


def test_a_method_of_the_script_that_is_not_what_was_validated_leaves_its_class_alone(launching: Launching) -> None:
    launching.script(CATALOG, "demo_catalog.py")
    launching.script(FAST, "fastlib.py")
    changed = optimization(launching, Model_scale="@staticmethod\ndef scale(x):\n    return x + 1\n")
    ran = launching.rank(launching.job(dedent(script()), optimization=changed))
    assert ran.status == 7, ran.err
    assert ran.out.splitlines() == ["around [<step 1>] | forward 2 | 3 | 3 | model"]
    report = json.loads((ran.folder / "turbo" / "ranks" / "0" / "report.json").read_text())
    entry = next(item for item in report["execution"] if item["group"] == "demo.model")
    assert (entry["status"], entry["reasons"]) == ("rolled_back", ["evidence.changed"])
