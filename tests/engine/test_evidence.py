# SPDX-License-Identifier: Apache-2.0
"""What is read of objects that are there: the text of their definition, and the layers around it."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import linecache
import os
import sys
import types
import zipfile
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine import evidence
from turbo_hydra.engine.canonical import ast_hash
from turbo_hydra.engine.checks import Check, check_evidence
from turbo_hydra.engine.declarations import Place
from turbo_hydra.engine.evidence import EvidenceRecord, Layer, LiveEvidence, LiveReader, unwrapped
from turbo_hydra.engine.targets import resolve

if TYPE_CHECKING:
    from tests.engine.conftest import Lab


def sha(text: str) -> str:
    return "source-v1:" + hashlib.sha256(text.encode()).hexdigest()


def read(lab: Lab, target: str) -> LiveEvidence:
    site = resolve(lab.path(target), "global")
    return LiveReader().read(site.raw, site.name)


DECORATORS = """
    import functools

    def polite(function):
        @functools.wraps(function)
        def layer(*args, **kwargs):
            return function(*args, **kwargs)
        return layer

    def rude(function):
        def other(*args, **kwargs):
            return function(*args, **kwargs)
        return other

    class Holder:
        def __init__(self, function):
            functools.update_wrapper(self, function)
        def __call__(self, *args):
            return self.__wrapped__(*args)
"""

# Definition, and the text whose hash its evidence is.
KINDS = {
    "f": ("def f(x):\n    return x\n", "def f(x):\n    return x\n"),
    "e": (
        "def e(a, /, b, c=1, *d, e, g=2, **h):\n    i = a\n    return i\n",
        "def e(a, /, b, c=1, *d, e, g=2, **h):\n    i = a\n    return i\n",
    ),
    "g": ("async def g(x):\n    return x\n", "async def g(x):\n    return x\n"),
    "C": ("class C:\n    x = 1\n", "class C:\n    x = 1\n"),
    "C.m": ("class C:\n    def m(self):\n        return 1\n", "def m(self):\n    return 1\n"),
    "C.s": (
        "class C:\n    @staticmethod\n    def s():\n        return 1\n",
        "@staticmethod\ndef s():\n    return 1\n",
    ),
    "C.c": (
        "class C:\n    @classmethod\n    def c(cls):\n        return 1\n",
        "@classmethod\ndef c(cls):\n    return 1\n",
    ),
    "C.p": ("class C:\n    @property\n    def p(self):\n        return 1\n", "@property\ndef p(self):\n    return 1\n"),
    "C.k": (
        "import functools\nclass C:\n    @functools.cached_property\n    def k(self):\n        return 1\n",
        "@functools.cached_property\ndef k(self):\n    return 1\n",
    ),
    "C.D.m": (
        "class C:\n    class D:\n        def m(self):\n            return 1\n",
        "def m(self):\n    return 1\n",
    ),
    "C.D": ("class C:\n    class D:\n        x = 1\n", "class D:\n    x = 1\n"),
    "C._C__hidden": (
        "class C:\n    def __hidden(self, __x):\n        return __x\n",
        "def __hidden(self, __x):\n    return __x\n",
    ),
    "h": (
        "import functools\n@functools.lru_cache(maxsize=None)\ndef h(x):\n    return x\n",
        "@functools.lru_cache(maxsize=None)\ndef h(x):\n    return x\n",
    ),
    "p": (
        "import functools\ndef f(x, y):\n    return x\np = functools.partial(f, 1)\n",
        "def f(x, y):\n    return x\n",
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_hashed_by_the_text_of_its_definition(lab: Lab, name: str) -> None:
    module, text = KINDS[name]
    path = lab.write("lib", module)
    found = read(lab, f"lib.{name}")
    assert found.source == sha(text)
    assert found.ast == ast_hash(text)
    assert (found.reason, found.artifact, found.home) == ("", None, "")
    assert found.place is not None
    assert found.place.file == str(path)
    assert path.read_text().splitlines()[found.place.line - 1].strip() == text.splitlines()[0]


def test_a_property_hashes_all_its_accessors(lab: Lab) -> None:
    getter = "@property\ndef p(self):\n    return 1\n"
    setter = "@p.setter\ndef p(self, value):\n    pass\n"
    body = "".join(f"    {line}\n" for line in (getter + setter).splitlines())
    lab.write("lib", "class C:\n" + body)
    assert read(lab, "lib.C.p").source == sha(getter + setter)


def test_accessors_with_text_at_the_margin_have_evidence(lab: Lab) -> None:
    lab.write("lib", 'class C:\n    @property\n    def p(self):\n        return """a\nb\n"""\n')
    found = read(lab, "lib.C.p")
    assert found.ast == ast_hash('@property\ndef p(self):\n    return """a\nb\n"""\n')


def test_a_layer_that_copies_names_is_seen_and_so_is_one_that_does_not(lab: Lab) -> None:
    lab.write("deco", DECORATORS)
    path = lab.write(
        "lib",
        """
        from .deco import polite, rude

        @polite
        @rude
        def f(x):
            return x
        """,
    )
    found = read(lab, "lib.f")
    deco = lab.path("deco")
    assert found.chain == (f"{deco}:polite.<locals>.layer", f"{deco}:rude.<locals>.other")
    assert found.source == sha("@polite\n@rude\ndef f(x):\n    return x\n")
    assert [layer.place.line for layer in found.layers if layer.place] == [5, 11]
    assert found.place is not None
    assert (found.place.file, found.place.line) == (str(path), 4)


def test_functions_under_one_decorator_share_its_code_and_not_their_evidence(lab: Lab) -> None:
    lab.write("deco", DECORATORS)
    lab.write(
        "lib",
        """
        from .deco import polite, rude

        @polite
        def f(x):
            return x

        @polite
        def g(x):
            return -x

        @rude
        def h(x):
            return x

        @rude
        def i(x):
            return -x
        """,
    )
    module = lab.load("lib")
    assert module.f.__code__ is module.g.__code__
    assert len({read(lab, f"lib.{name}").source for name in "fghi"}) == 4


def test_layers_that_are_objects_are_named_by_their_type(lab: Lab) -> None:
    lab.write("deco", DECORATORS)
    lab.write(
        "lib",
        """
        import functools
        from .deco import Holder

        @Holder
        def f(x):
            return x

        @functools.lru_cache(None)
        def g(x):
            return x

        h = functools.partial(f, 1)
        """,
    )
    holder = f"{lab.path('deco')}:Holder"
    assert read(lab, "lib.f").chain == (holder,)
    assert read(lab, "lib.g").chain == ("functools:_lru_cache_wrapper",)
    assert read(lab, "lib.h").chain == ("functools:partial", holder)


def test_a_closure_that_holds_two_functions_of_the_name_hides_neither(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        def choose(first, second):
            def f(x):
                return first(x) if x else second(x)
            return f

        def make(value):
            def f(x):
                return value
            return f

        f = choose(make(1), make(2))
        """,
    )
    found = read(lab, "lib.f")
    assert found.chain == ()
    assert found.source == sha("def f(x):\n    return first(x) if x else second(x)\n")


@pytest.mark.parametrize(
    ("text", "reason", "place"),
    [
        ("exec('\\ndef f(x): return x')", "made by exec", ("<string>", 2)),
        ("\nf = lambda x: x", "a lambda has no definition of its own", ("lib.py", 2)),
        ("f = len", "builtins:builtin_function_or_method has no Python source", None),
        ("f = type('f', (), {'x': 1})", "its file defines class f 0 times", ("lib.py", 0)),
        ("if 1:\n    class f:\n        x = 1\nelse:\n    class f:\n        x = 2", "class f 2 times", ("lib.py", 0)),
        ("class f:\n    def m(self): return 1\n", "its file was edited after it was imported", ("lib.py", 0)),
        ("class f:\n    x = 1\n", "cannot be parsed by this Python", ("lib.py", 0)),
    ],
)
def test_what_has_no_evidence_says_why_and_where_it_is(
    lab: Lab, text: str, reason: str, place: tuple[str, int] | None
) -> None:
    path = lab.write("lib", text)
    lab.load("lib")
    if "edited" in reason:
        lab.write("lib", text.replace("1", "2"))
    elif "parsed" in reason:
        lab.write("lib", "class f:")
    found = read(lab, "lib.f")
    assert (found.source, found.ast) == (None, None)
    assert reason in found.reason
    file, line = place or ("", 0)
    assert found.place == (Place(str(path.with_name(file)) if file == path.name else file, line) if place else None)


def test_an_object_that_can_be_called_is_where_its_class_is(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lab.write(
        "lib",
        """
        class Meta(type):
            pass

        class C:
            def __call__(self, x):
                return x

        f, odd = C(), C()
        odd.__module__ = ["no", "name"]
        bare = Meta("bare", (), {"__module__": "no_such_module"})
        """,
    )
    for name, place in (("f", Place(str(path), 5)), ("odd", Place(str(path), 5)), ("bare", None)):
        found = read(lab, f"lib.{name}")
        assert (found.place, found.source, found.artifact) == (place, None, None), name
    monkeypatch.setattr(evidence, "artifact_hash", lambda module, file: "artifact-v1:any")
    found = read(lab, "lib.f")
    assert (found.artifact, found.place) == ("artifact-v1:any", None), "binaries are in no line of a file"


def test_a_layer_of_no_module_is_of_an_unknown_one(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        space = {}
        exec("def around(f):\\n    def layer(x):\\n        return f(x)\\n    return layer", space)

        @space["around"]
        def f(x):
            return x
        """,
    )
    (name,) = read(lab, "lib.f").chain
    assert name.startswith("<unknown>:")


def test_a_class_of_an_extension_is_not_looked_for_in_its_binary() -> None:
    extension = importlib.import_module("_struct")
    found = LiveReader().read(extension.Struct, "Struct", "_struct")
    assert (found.source, found.place) == (None, None)
    assert (found.artifact is not None) is hasattr(extension, "__file__"), "not of an interpreter that holds it itself"


@pytest.mark.parametrize("there", [0, 1])
@pytest.mark.parametrize(
    "body",
    [
        "def m(self):\n    return {}",
        "x = {}\ndef m(self): return 1",
        "def m(self):\n    return 1\nx = {}",
        "@property\ndef p(self):\n    return {}",
        "@staticmethod\ndef s():\n    return {}",
        "from .elsewhere import f, g\ndef m(self): return {}",
        "",
    ],
    ids=["method", "last line", "first line", "property", "static method", "borrowed", "one line"],
)
def test_of_two_classes_of_one_name_the_one_that_is_there_is_hashed(lab: Lab, body: str, there: int) -> None:
    def text(value: int) -> str:
        lines = [f"    {line}\n" for line in body.format(value).splitlines()]
        return "class C:\n" + "".join(lines) if body else f"class C: m = lambda self: {value}\n"

    # Functions of another file stand at lines where this one has either class.
    lab.write("elsewhere", "\n\ndef f(self): return 1\n" + "\n" * (text(0).count("\n")) + "def g(self): return 1\n")
    texts = ["".join(f"    {line}\n" for line in text(value).splitlines()) for value in (0, 1)]
    lab.write("lib", f"THERE = {there}\nif THERE == 0:\n{texts[0]}else:\n{texts[1]}")
    assert read(lab, "lib.C").source == sha(text(there))


def test_lines_are_counted_as_python_counts_them(lab: Lab) -> None:
    lab.write("lib", "x = 'a\x0cb\x1c\u2028'\n\x0c\ndef f(x):\n    return x\n")
    assert read(lab, "lib.f").source == sha("def f(x):\n    return x\n")


def test_files_with_other_line_ends_or_a_byte_order_mark_are_read_as_python_reads_them(lab: Lab) -> None:
    path = lab.write("lib", "")
    path.write_bytes(b"\xef\xbb\xbfx = 1\r\ndef f(x):\r\n    return x\r\n")
    assert read(lab, "lib.f").source == sha("def f(x):\n    return x\n")


def test_a_file_in_another_encoding_is_read_in_it(lab: Lab) -> None:
    path = lab.write("lib", "")
    path.write_bytes("# -*- coding: latin-1 -*-\ndef f(x):\n    return 'é'\n".encode("latin-1"))
    assert read(lab, "lib.f").source == sha("def f(x):\n    return 'é'\n")


def test_a_module_in_an_archive_has_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed_in_a_zip.py", "def f(x):\n    return x\n")
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    module = importlib.import_module("packed_in_a_zip")
    monkeypatch.delitem(sys.modules, "packed_in_a_zip")
    assert LiveReader().read(module.f, "f").source == sha("def f(x):\n    return x\n")


def test_a_module_without_its_source_has_none(lab: Lab) -> None:
    path = lab.write("lib", "def f(x):\n    return x\n")
    module = lab.load("lib")
    path.unlink()
    linecache.checkcache(str(path))
    found = LiveReader().read(module.f, "f")
    assert found.source is None
    assert str(path) in found.reason


@pytest.mark.parametrize(
    "edited",
    [
        "\n\ndef f(x):\n    return x + 1\n",
        "def g(x):\n    return x + 1\n",
        "def f(x, y):\n    return x + 1\n",
        "def f(x):\n    return x + 2\n",
        "def f(x):\n    return x + True\n",
        "def f(x):\n    return x - 1\n",
        "def f(x):\n    return y + 1\n",
        "def f(x):\n    def g():\n        return 2\n    return x + 1\n",
        "def f(x:\n",
        "class f:\n    x = 1\n",
    ],
    ids=["moved", "renamed", "parameter", "constant", "type", "operator", "name", "nested", "syntax", "class"],
)
@pytest.mark.parametrize("target", ["f", "C.f", "C"])
def test_a_file_that_was_edited_after_its_import_is_no_evidence_for_what_was_imported(
    lab: Lab, target: str, edited: str
) -> None:
    def text(function: str) -> str:
        if target == "f":
            return function
        return "class C:\n" + "".join(f"    {line}\n" for line in function.splitlines())

    path = lab.write("lib", text("def f(x):\n    return x + 1\n"))
    lab.load("lib")
    path.write_text(text(edited))
    found = read(lab, f"lib.{target}")
    assert found.source is None, "the text of the file would be taken for the code that was loaded"
    assert found.reason


def test_a_file_that_was_only_touched_or_grew_at_its_end_still_is(lab: Lab) -> None:
    text = 'def f(x, y=(1, 2.0)):\n    """Doc."""\n    z = [i for i in x if i in {1, 2}]\n    return lambda: z\n'
    path = lab.write("lib", text)
    lab.load("lib").f(range(3))
    path.write_text(text + "\n# a comment\n")
    os.utime(path, (4e9, 4e9))
    assert read(lab, "lib.f").source == sha(text)


def test_unwrapping_ends_where_layers_go_in_a_circle() -> None:
    def f() -> None:
        pass

    f.__wrapped__ = f  # type: ignore[attr-defined]
    inner, layers = unwrapped(f, "f")
    assert inner is f
    assert len(layers) > 1


RECORD = EvidenceRecord(source="source-v1:a", ast="ast-v1:a", chain=("m:layer",), file="lib.py")


def seen(source: str | None, tree: str | None, reason: str = "") -> LiveEvidence:
    return LiveEvidence(source, (), None, reason, tree=None if tree is None else lambda: tree)


LIVE = seen("source-v1:a", "ast-v1:a")


def check(
    records: tuple[EvidenceRecord, ...],
    live: LiveEvidence,
    versions: dict[str, str] | None = None,
    target: str = "lib.f",
) -> Check:
    installed = versions or {}
    return check_evidence("a.x", target, records, live, installed.get)


def test_source_or_tree_is_enough() -> None:
    record = EvidenceRecord(source="source-v1:a", ast="ast-v1:a")
    assert check((record,), LIVE).status == "pass"
    assert check((record,), seen("source-v1:b", "ast-v1:a")).message == "ast-v1"
    assert check((record,), seen("source-v1:a", "ast-v1:b")).message == "source-v1"
    assert check((record,), seen("source-v1:b", "ast-v1:b")).code == "evidence.changed"


def test_none_matches_nothing() -> None:
    assert check((EvidenceRecord(source=None, ast=None),), LIVE).code == "evidence.changed"
    unreadable = seen(None, None, "it was made by exec")
    found = check((EvidenceRecord(source=None, ast=None),), unreadable)
    assert (found.code, found.status) == ("evidence.unreadable", "fail")
    assert "made by exec" in found.message


def test_no_record_is_a_failure_that_may_be_forced() -> None:
    found = check((), LIVE)
    assert (found.code, found.status, found.forceable) == ("evidence.missing", "fail", True)
    assert "turbo-opt generate" in found.message


def test_one_of_several_recorded_states_is_enough() -> None:
    other = EvidenceRecord(source="source-v1:b", ast="ast-v1:b")
    same = EvidenceRecord(source="source-v1:a", ast="ast-v1:a")
    assert check((other, same), LIVE).status == "pass"


def test_only_records_of_the_installed_version_count() -> None:
    records = (
        EvidenceRecord("torch", "2.10.0", "source-v1:a", "ast-v1:a"),
        EvidenceRecord("torch", "2.11.0", "source-v1:b", "ast-v1:b"),
    )
    assert check(records, LIVE, {"torch": "2.10.0"}).status == "pass"
    assert check(records, LIVE, {"torch": "2.11.0"}).code == "evidence.changed"
    found = check(records, LIVE, {"torch": "2.12.0"})
    assert (found.code, found.forceable) == ("evidence.version", True)
    for said in ("2.10.0, 2.11.0", "torch 2.12.0", "--wheel"):
        assert said in found.message
    assert "torch is not installed" in check(records, LIVE).message


def test_a_chain_is_compared_in_full() -> None:
    assert check((RECORD,), LIVE).code == "evidence.changed"
    assert "lost layers" in check((RECORD,), LIVE).message


def test_a_record_survives_its_json_form() -> None:
    for record in (RECORD, EvidenceRecord(chain=None), EvidenceRecord("t", "1", artifact="artifact-v1:x")):
        assert EvidenceRecord.from_dict(record.to_dict()) == record
    assert EvidenceRecord(chain=None).to_dict()["chain"] == "unseen"


def test_a_foreign_wrapper_is_named_with_file_and_line(lab: Lab) -> None:
    deco = lab.write("deco", DECORATORS)
    lab.write("lib", "def f(x):\n    return x\n")
    lab.write("new", "def f(*args, **kwargs):\n    return args\n")
    lab.group("it", lab.replace("lib.f", "new.f"))
    lab.record()
    module = lab.load("lib")
    for name, line in (("polite", 5), ("rude", 11)):
        original = module.f
        module.f = getattr(lab.load("deco"), name)(original)
        lab.plan()
        assert lab.codes() == ["evidence.foreign_wrapper"]
        assert f"({deco}:{line})" in lab.message()
        assert f"{lab.path('deco')}:{name}" in lab.message()
        assert lab.decision() == "block"
        lab.apply(force=("it",))
        assert lab.status() == "applied"
        assert lab.member()["evidence"] == "forced"
        lab.engines[-1].undo()
        module.f = original


def test_a_decorator_that_was_taken_away_is_a_change(lab: Lab) -> None:
    lab.write("deco", DECORATORS)
    lab.write("lib", "from .deco import polite\n@polite\ndef f(x):\n    return x\n")
    lab.write("new", "def f(*args, **kwargs):\n    return x\n")
    lab.group("it", lab.replace("lib.f", "new.f"))
    lab.record()
    module = lab.load("lib")
    module.f = module.f.__wrapped__
    lab.plan()
    assert lab.codes() == ["evidence.changed"]
    assert "lost layers" in lab.message()


def test_evidence_without_a_chain_allows_the_package_s_own_layers_and_no_foreign_one(lab: Lab) -> None:
    lab.write("deco", DECORATORS)
    lab.write("lib", "from .deco import polite\n@polite\ndef f(x):\n    return x\n")
    live = read(lab, "lib.f")
    record = EvidenceRecord(source=live.source, ast=live.ast, chain=None)
    target = lab.path("lib.f")
    assert check((record,), live, target=target).status == "pass"
    assert check((record,), live, target="another.f").code == "evidence.foreign_wrapper"


def test_evidence_read_twice_is_equal(lab: Lab) -> None:
    lab.write("lib", "def f(x):\n    return x\nclass C:\n    def m(self): pass\n")
    module, reader = lab.load("lib"), LiveReader()
    for value, name in ((module.f, "f"), (module.C, "C"), (module.C.m, "m")):
        first, second = reader.read(value, name), reader.read(value, name)
        assert first.source is not None
        assert (first.source, first.ast, first.layers, first.place) == (
            second.source,
            second.ast,
            second.layers,
            second.place,
        )


def test_a_definition_is_hashed_with_its_own_text_only(lab: Lab) -> None:
    text = dedent(
        '''
        # before
        def f(x):  # beside
            """Doc."""
            # inside
            return x
        # after
        '''
    )
    lab.write("lib", text)
    expected = 'def f(x):  # beside\n    """Doc."""\n    # inside\n    return x\n'
    assert read(lab, "lib.f").source == sha(expected)


def test_a_class_of_an_extension_has_the_evidence_of_its_binaries() -> None:
    extension = pytest.importorskip("yaml._yaml")
    found = LiveReader().read(extension.CParser, "CParser", "yaml._yaml")
    function = LiveReader().read(extension.get_version_string, "get_version_string", "yaml._yaml")
    assert found.artifact == function.artifact is not None
    assert (found.source, found.reason) == (None, "")


def test_what_has_no_source_is_described_by_the_module_that_it_names_or_else_its_owner_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str | None]] = []

    def artifact_hash(module: str, file: str | None) -> str:
        asked.append((module, file))
        return f"artifact-v1:{module}"

    monkeypatch.setattr(evidence, "artifact_hash", artifact_hash)
    reader = LiveReader()
    # A C function names its module; a method of a C type names none.
    found = [reader.read(item, "f", module) for item, module in ((len, "json"), (str.join, "json"), (str.join, "none"))]
    assert [(item.artifact, item.home) for item in found] == [
        ("artifact-v1:builtins", "builtins"),
        ("artifact-v1:json", "json"),
        (None, ""),
    ]
    assert asked == [("builtins", None), ("json", importlib.import_module("json").__file__)]


def test_a_class_that_c_code_made_is_not_described_by_a_python_class_of_its_name() -> None:
    datetime = importlib.import_module("datetime")
    if not hasattr(importlib.import_module("_datetime"), "datetime"):
        pytest.skip("this Python has no C datetime")
    found = LiveReader().read(datetime.datetime, "datetime", "datetime")
    assert (found.source, found.artifact) == (None, None)
    assert "has no Python source" in found.reason


def test_the_layers_of_each_accessor_of_a_property_are_seen(lab: Lab) -> None:
    lab.write("deco", DECORATORS)
    lab.write(
        "lib",
        """
        from .deco import polite, rude
        class C:
            @property
            @polite
            def p(self):
                return 1
            @p.setter
            @rude
            def p(self, value):
                pass
        """,
    )
    layers = [f"{lab.package}.deco:polite.<locals>.layer", f"{lab.package}.deco:rude.<locals>.other"]
    found = read(lab, "lib.C.p")
    assert list(found.chain) == layers
    getter = "@property\n@polite\ndef p(self):\n    return 1\n"
    setter = "@p.setter\n@rude\ndef p(self, value):\n    pass\n"
    assert found.source == sha(getter + setter)


def test_a_bound_method_has_the_evidence_of_its_function(lab: Lab) -> None:
    lab.write("lib", "class C:\n    def m(self, x):\n        return x\nf = C().m\n")
    found = read(lab, "lib.f")
    assert (found.source, found.chain) == (sha("def m(self, x):\n    return x\n"), ())


def test_a_class_that_says_what_it_wraps_is_no_layer(lab: Lab) -> None:
    text = "class C:\n    __wrapped__ = print\n\n    def m(self):\n        return 1\n"
    lab.write("lib", text)
    found = read(lab, "lib.C")
    assert (found.source, found.chain) == (sha(text), ())


def test_a_record_names_an_artifact_only_where_there_is_one() -> None:
    nothing = dict.fromkeys(("dist", "version", "source", "ast"), None)
    assert EvidenceRecord().to_dict() == {**nothing, "chain": [], "file": ""}
    assert EvidenceRecord(artifact="artifact-v1:a").to_dict()["artifact"] == "artifact-v1:a"


@pytest.mark.parametrize(
    "now",
    [
        "def f(x, y):\n    return x\n",
        "def f(y):\n    return y\n",
        "def f(*x):\n    return x\n",
        "def f():\n    x = 1\n    return x\n",
        "class f:\n    x = 1\n",
        "\n\ndef f(x):\n    return x\n",
        "f = 3\n",
    ],
)
def test_a_file_that_was_exchanged_for_an_older_one_is_not_taken_for_what_was_loaded(lab: Lab, now: str) -> None:
    assert exchanged(lab, "def f(x):\n    return x\n", now) == "line 1 of its file does not define 'f' (any more)"


@pytest.mark.parametrize(("before", "now"), [("ax", "x"), ("x", "ax"), ("x", "__x"), ("__x", "x"), ("_C__x", "_x")])
def test_parameters_of_other_names_are_those_of_another_function(lab: Lab, before: str, now: str) -> None:
    texts = [f"def f({name}):\n    return {name}\n" for name in (before, now)]
    assert exchanged(lab, *texts) == "line 1 of its file does not define 'f' (any more)"


def exchanged(lab: Lab, before: str, now: str) -> str:
    """Why `lib.f`, loaded from the first text, has no evidence where its file is the second, and as old."""
    path = lab.write("lib", before)
    module = lab.load("lib")
    path.write_text(now)
    os.utime(path, (0, 0))  # a copy keeps its age: nothing says that it was not there from the start
    linecache.checkcache(str(path))
    found = LiveReader().read(module.f, "f")
    assert found.source is None
    return found.reason


def test_a_slot_of_that_name_is_not_what_an_object_wraps() -> None:
    class Slotted:
        __slots__ = ("__wrapped__",)

    value = Slotted()
    assert unwrapped(value, "f") == (value, [])


@pytest.mark.parametrize(
    ("accessors", "reason"),
    [
        ("plain, lambda self, value: None", "a lambda has no definition of its own"),
        ("lambda self: 1, plain", "a lambda has no definition of its own"),
        ("operator.attrgetter('x')", "operator:attrgetter has no Python source"),
        ("plain, None, made", "made by exec"),
    ],
)
def test_a_property_with_an_accessor_that_cannot_be_read_has_no_evidence(lab: Lab, accessors: str, reason: str) -> None:
    lab.write(
        "lib",
        f"""
        import operator
        exec("def made(self): pass")
        def plain(self, value=None):
            return 1
        class C:
            p = property({accessors})
        """,
    )
    found = read(lab, "lib.C.p")
    assert (found.source, found.ast, found.artifact) == (None, None, None)
    assert reason in found.reason


def test_a_property_is_where_its_first_accessor_is(lab: Lab) -> None:
    path = lab.write(
        "lib",
        """
        def f(self): return 1
        def g(self, value): pass
        class C:
            p = property(g, f)
            q = property(None, f)
        """,
    )
    for name, line in (("p", 3), ("q", 2)):
        place = read(lab, f"lib.C.{name}").place
        assert place is not None
        assert (place.file, place.line) == (str(path), line)


def test_a_function_that_calls_one_it_was_given_by_another_name_is_what_is_described(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        def make(helper):
            def f(x):
                return helper(x)
            return f
        def double(x):
            return 2 * x
        f = make(double)
        """,
    )
    found = read(lab, "lib.f")
    assert (found.source, found.chain) == (sha("def f(x):\n    return helper(x)\n"), ())


def test_a_closure_that_has_nothing_in_a_cell_yet_is_read(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        def make():
            def f(x):
                return later(x)
            return f
            later = None
        f = make()
        """,
    )
    assert read(lab, "lib.f").source == sha("def f(x):\n    return later(x)\n")


@pytest.mark.parametrize(
    "text",
    [
        "f = lambda x: x",
        "exec('def f(x): return x')",
        "f = type('f', (), {'x': 1})",
        "f = property(lambda self: 1)",
        "def f(x): return 1\nf.__code__ = compile('def f(x): return 2', __file__, 'exec').co_consts[0]",
    ],
)
def test_python_code_that_cannot_be_read_is_not_described_by_the_binaries_of_its_package(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(evidence, "artifact_hash", lambda module, file: "artifact-v1:any")
    lab.write("lib", text)
    value = lab.load("lib").f
    found = LiveReader().read(value, "f", lab.path("lib"))
    assert (found.source, found.artifact, found.home) == (None, None, "")
    assert found.reason


@pytest.mark.parametrize("module", ["no_such_module", "a_module_without_a_file", "builtins", 3, None])
def test_a_class_of_a_module_without_a_file_has_no_source(monkeypatch: pytest.MonkeyPatch, module: object) -> None:
    monkeypatch.setitem(sys.modules, "a_module_without_a_file", types.ModuleType("a_module_without_a_file"))
    made = type("C", (), {"__module__": module})
    found = LiveReader().read(made, "C", "lib")
    assert (found.source, found.reason) == (None, "class C has no Python source")


def test_layers_have_the_same_names_on_pythons_whose_code_does_not_tell_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write("deco", DECORATORS)
    lab.write("lib", "from .deco import polite, rude\n\n@polite\n@rude\ndef f(x):\n    return x\n")
    lab.write("made", "exec('def rude(f):\\n def other(*args): return f(*args)\\n return other')\n")
    lab.write("under", "from .made import rude\n\n@rude\ndef f(x):\n    return x\n")
    monkeypatch.setattr(evidence, "hasattr", lambda item, name: name != "co_qualname", raising=False)
    deco = lab.path("deco")
    assert read(lab, "lib.f").chain == (f"{deco}:polite.<locals>.layer", f"{deco}:rude.<locals>.other")
    assert read(lab, "under.f").chain == (f"{lab.path('made')}:other",), "what has no text has its bare name"


@pytest.mark.parametrize("item", [EvidenceRecord(), Layer("m:f", None), LIVE], ids=["record", "layer", "live"])
def test_what_was_read_is_not_changed_afterwards(item: Any) -> None:
    for field in dataclasses.fields(item):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(item, field.name, None)
