# SPDX-License-Identifier: Apache-2.0
"""The two hashes of a definition, against values that were computed without the code under test."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turbo_hydra.engine.canonical as canonical_module
from turbo_hydra.engine.canonical import ast_hash, canonical, normalised, source_hash

# Text, SHA-256 of its bytes, SHA-256 of its canonical tree. The latter were computed by fifteen lines over
# ast.iter_fields that share nothing with the package, and came out equal on Python 3.10, 3.11, 3.12 and 3.13.
EXAMPLES = {
    "a function": (
        "def f(x):\n    return x + 1\n",
        "64545701caa5b428241c24483485352ddf117c2b34c9e4187ad86ec936a15ab3",
        "c893813ca3ca3a21fdb536492eca9961a2442c9af7e2e9d75ca676b9a2c0bf87",
    ),
    "defaults and keywords": (
        'def f(a, /, b, c=1, *args, d, e=None, **kw) -> int:\n    """Text."""\n    return a\n',
        "640fcf727c314176501d02e19f669ec7d4a328133cb92e838074b3a5a776256f",
        "786ae6d6d8fbfacf44ccbe740d7885ac3ceb26725cebfd5bcac3b41e309ae7e2",
    ),
    "a decorated method": (
        "@wraps(g)\n@other\ndef f(self):\n    pass\n",
        "9921666ecd686bc51234f80ff5467e05e9393b6f5adffd4fa9a0e7124e6b4f5b",
        "db3910b5452ae9da4451e79ebee2f7b49e5f0ed2ddfb783a414941cb6c715c8a",
    ),
    "an async function": (
        "async def f(x):\n    async with x as y:\n        await y\n    async for z in x:\n        yield z\n",
        "39f2c652f5da20a6d781588f402efffbd3fb18433ba6e606da343481131468fb",
        "675a23f481e938be1386b01cbe0a996bf70be4bfef221cc3ee4eb3b10e595ab9",
    ),
    "a class": (
        'class C(Base, metaclass=M):\n    """Doc."""\n\n    x: int = 3\n\n    def f(self):\n        return self.x\n',
        "065195c0321ef67ba68a04a0eeef6eec05b7d926d2063377974bf9cdc6f63056",
        "0247e77afedf859eb3211bf49f6f88cd49c7bbc8338e4b094575f1c69249a555",
    ),
    "f-strings": (
        'def f(x, y):\n    return f"{x!r:>{y}} and {{}} {x=}"\n',
        "2b17d8728bc37a10026c5377e6b31bd24594f8256de127228771b3bc59e512e2",
        "fbd10ce296d9a65fb622d7f80eeba2b1ffb5d1dc5eee5c6798aeadbce66900fa",
    ),
    "strings and numbers": (
        "def f():\n    return 'a\\n' \"b\", b'\\x00', 1.5e10, 2j, ..., True, None, 0x10, '\xe9\U0001fae0'\n",
        "b768c30c04411a565dab30b42d8f8e51c5933718d40500e8e64428175ca434e8",
        "3c66377f4c9e0e69b3ad9a36d8aa0f77872cdfb45d4c7feff79a37e266e16a69",
    ),
    "comprehensions": (
        "def f(xs):\n    return [x for x in xs if x], {k: v for k, v in xs}, (y for y in xs), {z for z in xs}\n",
        "a6abda905a5bc64660765d4b93e5d2fa36f443ccf577cfcc558e350626aa2e81",
        "c414c28910fefb8b06703ddada8af2c52698e73ad7a9c0d87cb9dca5bf84d762",
    ),
    "a walrus and a lambda": (
        "def f(x):\n    if (n := len(x)) > 1:\n        return lambda a, *, b=n: a @ b\n",
        "8b1a46d41aac2ad21c46cc8785c2826d5ef02cdf2c245b82443e399b871d4e70",
        "6c2a145ba4a4d4d209b49e0e7ee7882f5c8f2ad9333e6d5e0a4d50b068dc3b72",
    ),
    "a match": (
        "def f(x):\n"
        "    match x:\n"
        "        case [1, *rest]:\n"
        "            return rest\n"
        "        case {'a': y, **z}:\n"
        "            return y\n"
        "        case Point(x=0) | None:\n"
        "            return None\n"
        "        case _:\n"
        "            return ...\n",
        "995976a5d6c9c8fd8dfc40a765d756f9549455dfa88222d13fd838acd8e671de",
        "3831a1e467adc352808fb5d63344b306143c004c7711ffaafcfab04ca9b92564",
    ),
    "exceptions": (
        "def f():\n"
        "    try:\n"
        "        raise A from b\n"
        "    except (A, B) as e:\n"
        "        del e\n"
        "    else:\n"
        "        pass\n"
        "    finally:\n"
        "        global g\n"
        "        g = 1\n",
        "11090dccc4650f0bf081a8015ed656201e8633604e6541a7c336719a189b7b43",
        "e3f5e7d861e379e658d5cf4713480f5eb9989eeaaf42aee6f4b50859b40c3a23",
    ),
    "slices and stars": (
        "def f(x):\n    a, *b = x[1:, ::2, ...]\n    x[a] += -b\n    return [*a, *b], {**a}, f(*a, **b)\n",
        "0e24a51e93221ee8aeab2a99c01dec272bab9ad7b8314b61c91bef80a60c1616",
        "7493eed785c7b0e834502a613f2d8edd5a12ad1f1ac188901a04dbcc84598cc6",
    ),
}

# Written by hand from the grammar of `ast`.
BY_HAND = {
    "def f(x):\n    return x + 1\n": (
        "FunctionDef(name='f',args=arguments(args=[arg(arg='x'),]),body=[Return(value=BinOp("
        "left=Name(id='x',ctx=Load()),op=Add(),right=Constant(value=1))),])"
    ),
    "@d\ndef f():\n    'doc'\n": (
        "FunctionDef(name='f',args=arguments(),body=[Expr(value=Constant(value='doc')),],"
        "decorator_list=[Name(id='d',ctx=Load()),])"
    ),
    "class C(B):\n    x = None\n": (
        "ClassDef(name='C',bases=[Name(id='B',ctx=Load()),],body=[Assign(targets=[Name(id='x',ctx=Store()),],"
        "value=Constant(value=None)),])"
    ),
    "def f(x):\n    return f'{x}'\n": (
        "FunctionDef(name='f',args=arguments(args=[arg(arg='x'),]),body=[Return(value=JoinedStr(values=["
        "FormattedValue(value=Name(id='x',ctx=Load()),conversion=-1),])),])"
    ),
    "async def f(*, k: int = 0): ...\n": (
        "AsyncFunctionDef(name='f',args=arguments(kwonlyargs=[arg(arg='k',annotation=Name(id='int',ctx=Load())),],"
        "kw_defaults=[Constant(value=0),]),body=[Expr(value=Constant(value=Ellipsis)),])"
    ),
    "def f(*, k, m=1): return {**k}\n": (
        "FunctionDef(name='f',args=arguments(kwonlyargs=[arg(arg='k'),arg(arg='m'),],"
        "kw_defaults=[None,Constant(value=1),]),body=[Return(value=Dict(keys=[None,],"
        "values=[Name(id='k',ctx=Load()),])),])"
    ),
}

VERSIONS = ("3.10", "3.11", "3.12", "3.13")


def node(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


@pytest.mark.parametrize("text", BY_HAND)
def test_the_canonical_form_is_the_one_written_by_hand(text: str) -> None:
    assert canonical(node(text)) == BY_HAND[text]
    assert ast_hash(text) == "ast-v1:" + hashlib.sha256(BY_HAND[text].encode()).hexdigest()


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_hashes_are_those_computed_independently(name: str) -> None:
    text, source, tree = EXAMPLES[name]
    assert source_hash(text) == f"source-v1:{source}"
    assert ast_hash(text) == f"ast-v1:{tree}"
    assert ast_hash(node(text)) == f"ast-v1:{tree}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_indentation_line_ends_and_trailing_white_space_are_no_part_of_the_source(name: str) -> None:
    text, source, _ = EXAMPLES[name]
    assert source_hash(indent(text, "        ")) == f"source-v1:{source}"
    assert source_hash(text.replace("\n", "\r\n")) == f"source-v1:{source}"
    assert source_hash(text.replace("\n", "\r")) == f"source-v1:{source}"
    assert source_hash(text + "\n \t\n") == f"source-v1:{source}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_layout_and_comments_change_the_source_and_not_the_tree(name: str) -> None:
    text, source, tree = EXAMPLES[name]
    changed = "# a comment\n" + text.replace("):\n", "):  # another\n\n", 1)
    assert source_hash(changed) != f"source-v1:{source}"
    assert ast_hash(changed) == f"ast-v1:{tree}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_name_a_docstring_and_a_decorator_are_part_of_the_tree(name: str) -> None:
    text, _, _ = EXAMPLES[name]
    changed = node(text)
    assert isinstance(changed, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    changed.decorator_list = [ast.Name("another", ast.Load()), *changed.decorator_list]
    hashes = {ast_hash(text), ast_hash(changed)}
    changed = node(text)
    assert isinstance(changed, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    changed.body = [ast.Expr(ast.Constant("another text")), *changed.body]
    hashes.add(ast_hash(changed))
    changed.name = "another_name"
    hashes.add(ast_hash(changed))
    assert len(hashes) == 4


def test_what_changes_nothing_at_run_time_is_left_out() -> None:
    assert ast_hash("def f():\n    return u'x'\n") == ast_hash("def f():\n    return 'x'\n")
    typed = ast.parse("def f(x):  # type: (int) -> int\n    return x\n", type_comments=True).body[0]
    assert ast_hash(typed) == ast_hash("def f(x):\n    return x\n")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="this Python has no type parameters")
def test_type_parameters_which_older_pythons_lack_are_left_out() -> None:
    assert ast_hash("def f[T](x):\n    return x\n") == ast_hash("def f(x):\n    return x\n")


def test_empty_constants_inside_an_f_string_which_some_pythons_add_are_left_out() -> None:
    empty, filled = ast.JoinedStr([]), ast.JoinedStr([ast.Constant("")])
    assert canonical(empty) == canonical(filled) == "JoinedStr()"
    value = ast.FormattedValue(ast.Name("x", ast.Load()), -1, None)
    assert canonical(ast.JoinedStr([ast.Constant(""), value])) == canonical(ast.JoinedStr([value]))
    # An empty string elsewhere says something.
    assert ast_hash("def f():\n    return ''\n") != ast_hash("def f():\n    return\n")


def test_constants_of_equal_value_and_different_type_differ() -> None:
    texts = [f"def f():\n    return {value}\n" for value in ("1", "1.0", "True", "1j", "'1'", "b'1'", "None", "")]
    assert len({ast_hash(text) for text in texts}) == len(texts)


def test_text_that_does_not_parse_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError):
        ast_hash("def f(:\n")


_expressions = st.recursive(
    st.one_of(
        st.integers(-5, 10**30).map(str),
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        st.text(max_size=5).map(ascii),
        st.binary(max_size=5).map(repr),
        st.sampled_from(["x", "y.z", "None", "True", "..."]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: f"f({', '.join(items)})"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} if {pair[1]} else x)"),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} @ {pair[1]})"),
        inner.map(lambda item: f"(lambda a, *b, c={item}: a)"),
    ),
    max_leaves=8,
)


@given(_expressions)
def test_the_tree_of_any_definition_survives_being_written_anew(expression: str) -> None:
    text = f"def f(x):\n    return {expression}\n"
    assert ast_hash(ast.unparse(ast.parse(text))) == ast_hash(text)


@given(st.lists(_expressions, min_size=2, max_size=2, unique=True))
def test_two_definitions_have_one_hash_only_if_their_trees_are_equal(expressions: list[str]) -> None:
    first, second = (f"def f(x):\n    return {item}\n" for item in expressions)
    assert (ast_hash(first) == ast_hash(second)) is (ast.dump(ast.parse(first)) == ast.dump(ast.parse(second)))


@given(st.text(alphabet=" \tab#\n", max_size=40))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    once = normalised(text)
    assert normalised(once) == once
    assert once.endswith("\n")


def interpreter(version: str) -> str:
    """An interpreter of that version, or a skip that says why there is none."""
    candidates = [sys.executable, shutil.which(f"python{version}")]
    if pyenv := shutil.which("pyenv"):
        done = subprocess.run([pyenv, "prefix", version], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            candidates.append(str(Path(done.stdout.strip(), "bin", "python")))
    ask = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        if candidate is not None:
            done = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False)
            if done.returncode == 0 and done.stdout == version:
                return candidate
    pytest.skip(f"there is no Python {version} here (looked for python{version} on PATH and asked pyenv)")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_hashes_are_equal_on_every_python(version: str) -> None:
    texts = [text for text, _, _ in EXAMPLES.values()] + list(BY_HAND)
    texts += [f"def f(x, y):\n    return {item}\n" for item in F_STRINGS]
    code = (
        "import importlib.util, json, sys\n"
        f"spec = importlib.util.spec_from_file_location('canonical', {canonical_module.__file__!r})\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(json.dumps([[module.source_hash(t), module.ast_hash(t)] for t in json.load(sys.stdin)]))\n"
    )
    command = [interpreter(version), "-I", "-c", code]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[source_hash(text), ast_hash(text)] for text in texts]


# What Python 3.12's own tokens for f-strings changed, and what they might have.
F_STRINGS = (
    'f""',
    'f"{x:}"',
    'f"" ""',
    'f"{x}" "" f""',
    '"a" f"" "b"',
    'f"{x:{y:}}"',
    'f"{x = !r:^20}"',
    'f"{x:%H:%M}"',
    "f'''{\nx}'''",
    'f"\\N{DIGIT ONE}{x}"',
    'rf"\\d{x}\\s"',
    "f'{x:\\n}'",
    "f'{ {1: 2}[1] }'",
    'f"{(lambda: 1)}"',
    # Characters that became printable with Python 3.11, 3.12 and 3.13.
    "'\U0001fae0\U0001fae8\u2ffc'",
)


def test_empty_strings_count_everywhere_but_between_the_parts_of_an_f_string() -> None:
    assert ast_hash('x = ["", 1]') != ast_hash("x = [1]")
    assert ast_hash('f("", 1)') != ast_hash("f(1)")


def test_nodes_of_one_object_hash_as_their_text() -> None:
    text = "def f(x):\n    return x\n\n\ndef f(x, y):\n    return y\n"
    nodes = ast.parse(text).body
    assert ast_hash(nodes) == ast_hash(text)
    assert ast_hash(nodes[0]) == ast_hash(nodes[:1]) != ast_hash(text)
