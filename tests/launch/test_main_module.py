# SPDX-License-Identifier: Apache-2.0
"""A script in a rank is what it is under plain python: each is run both ways, and must say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

SCRIPTS = {
    "names": '''
        """What the script is for."""
        import os, sys
        names = sorted(set(globals()) - {"os", "sys"})
        "a text that stands alone is no docstring"
        print(__doc__, __name__, __file__, __package__, __cached__, names)
        print(sys.argv, sys.path[0] == os.path.dirname(__file__), sys.modules["__main__"].__dict__ is globals())
        print(__loader__.get_source(__name__)[:20], type(__builtins__))
    ''',
    "no docstring": """
        x = 1
        "not a docstring"
        print(__doc__)
    """,
    "future": """
        from __future__ import annotations
        from dataclasses import dataclass, fields

        @dataclass
        class Point:
            x: NotThere = 1
            y: int = 2

        def f(a: Unknown) -> Never: ...

        size: AlsoUnknown = 3
        print(fields(Point)[0].type, f.__annotations__, __annotations__, annotations.compiler_flag > 0)
    """,
    "pickle": """
        import pickle
        from dataclasses import dataclass
        from enum import Enum

        class Colour(Enum):
            RED = 1

        @dataclass(frozen=True)
        class Point:
            x: int
            colour: Colour = Colour.RED

        def f(point): return point.x

        again = pickle.loads(pickle.dumps([Point(3), Colour.RED, f]))
        print(again[0] == Point(3), again[1] is Colour.RED, again[2] is f, Point.__module__, f.__qualname__)
    """,
    "globals": """
        count = 0
        def more():
            global count, made
            count += 1
            made = count
        more(); more()
        print(count, made)
        if True:
            inner = 5
        for i in range(3):
            pass
        del more
        try:
            more
        except NameError as problem:
            print(problem)
        print(inner, i, [inner for _ in range(2)], (lambda: inner)())
    """,
    "stack": """
        import inspect, sys, types

        class Sought(types.ModuleType):
            times = 0

            @property
            def __file__(self):
                Sought.times += 1
                return __file__

        def depth(count):
            return depth(count - 1) if count else [frame.function for frame in inspect.stack()][:3]

        sys.modules["sought"] = Sought("sought")
        print(depth(3), Sought.times > 0)
        Sought.times = 0
        # What is not found in the modules' files is sought in all of them, at each call.
        print(depth(3), Sought.times)
    """,
    "source": """
        import inspect

        def outer(a,
                  b=2):
            # a comment
            return a + b

        class C:
            def m(self): return 1

        print(inspect.getsource(outer), inspect.getsource(C), inspect.getsourcelines(C.m)[1])
        print(outer.__code__.co_firstlineno)
        print(inspect.getmodule(outer).__name__, inspect.signature(outer))
    """,
    "imports": """
        from helper import *
        import helper
        print(shout("hello"), helper.__name__)
        try:
            from . import helper as relative
        except ImportError as problem:
            print(type(problem).__name__, problem)
    """,
    "exit in a function": """
        import atexit, sys
        atexit.register(print, "at exit")
        def end(): sys.exit(4)
        try:
            end()
        finally:
            print("finally")
    """,
    "exit with a text": """
        raise SystemExit("said why")
    """,
    "exit with None": """
        import sys
        sys.exit()
    """,
    "traceback": """
        def inner(depth):
            if depth:
                return inner(depth - 1)
            return {}["missing"]

        def outer():
            try:
                inner(2)
            except KeyError as problem:
                raise RuntimeError("could not") from problem

        if __name__ == "__main__":
            outer()
    """,
    "own excepthook": """
        import sys, traceback
        def hook(kind, value, tb):
            print("hook", kind.__name__, value, [frame.name for frame in traceback.extract_tb(tb)])
        sys.excepthook = hook
        def f(): raise ValueError("seen")
        f()
    """,
    "syntax error": """
        x = 1
        print("never printed")
        def f(:
            pass
    """,
    "error that only the compiler sees": """
        print("never printed")
        return 3
    """,
    "assert": """
        assert True, "fine"
        assert 1 == 2, "numbers"
    """,
    "warning": """
        import warnings
        def old(): warnings.warn("old thing", DeprecationWarning, stacklevel=2)
        old()
        warnings.warn("at the top")
    """,
    "threads": """
        import threading
        def work(): print("worker")
        def fail(): raise ValueError("in a thread")
        for target in (work, fail):
            thread = threading.Thread(target=target, name="t")
            thread.start()
            thread.join()
        late = threading.Timer(0.2, print, ["late"])
        late.start()
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_the_same_as_under_python(launching: Launching, name: str) -> None:
    launching.script("def shout(text): return text.upper()\n", "helper.py")
    job = launching.job(SCRIPTS[name], model={"positional": ["one"], "args": {"two": 2}})
    # Plain python adds the script's folder only where it was not told to leave it out.
    plain = launching.python(str(launching.folder / "script.py"), "one", "--two", "2", PYTHONSAFEPATH="")
    ours = launching.rank(job)
    assert (ours.status, ours.out, ours.err) == (plain.status, plain.out, plain.err)
    assert plain.out or plain.err or name == "exit with None"


@pytest.mark.parametrize("flag", ["-O", "-OO"])
def test_optimizing_flags_reach_each_statement(launching: Launching, flag: str) -> None:
    job = launching.job('"""Text."""\nassert False\nprint(__doc__, __debug__)\ndef f():\n    "doc"\nprint(f.__doc__)\n')
    plain = launching.python(flag, str(launching.folder / "script.py"))
    ours = launching.rank(job, flags=(flag,))
    assert (ours.status, ours.out, ours.err) == (plain.status, plain.out, plain.err) == (0, plain.out, "")


def test_an_encoding_that_the_script_declares_is_honoured(launching: Launching) -> None:
    job = launching.job("")
    (launching.folder / "script.py").write_bytes("# coding: latin-1\nprint(ascii('\xe9'))\n".encode("latin-1"))
    assert launching.rank(job).out == "'\\xe9'\n"


def test_a_module_is_run_as_python_m_does(launching: Launching) -> None:
    launching.script("print('package', __name__)\n", "pkg/__init__.py")
    launching.script("NUMBER = 5\n", "pkg/parts.py")
    launching.script(
        """
        import os, sys
        from . import parts
        from .parts import NUMBER
        print(NUMBER, parts.__name__, __name__, __package__, __file__, sys.argv, sys.path[0] == os.getcwd())
        """,
        "pkg/train.py",
    )
    plain = launching.python("-m", "pkg.train", "a", PYTHONSAFEPATH="")
    ours = launching.rank(launching.job(model={"module": "pkg.train", "positional": ["a"]}))
    assert (ours.status, ours.out, ours.err) == (plain.status, plain.out, plain.err)
    assert plain.status == 0


def test_a_package_is_run_by_its_main_module(launching: Launching) -> None:
    launching.script("", "pkg/__init__.py")
    launching.script("print(__name__, __package__, __file__)\n", "pkg/__main__.py")
    plain = launching.python("-m", "pkg", PYTHONSAFEPATH="")
    ours = launching.rank(launching.job(model={"module": "pkg"}))
    assert (ours.status, ours.out, ours.err) == (plain.status, plain.out, plain.err)


def test_an_interrupted_script_ends_quietly(launching: Launching) -> None:
    ran = launching.rank(launching.job("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True: pass\n"))
    assert (ran.status, ran.out, ran.err) == (130, "", "")


def test_where_it_runs_and_what_it_imports_from(launching: Launching) -> None:
    launching.script("WHERE = 'sources'\n", "src/inside.py")
    (launching.folder / "work").mkdir()
    job = launching.job(
        """
        import os, subprocess, sys
        import inside
        print(os.path.basename(os.getcwd()), inside.WHERE)
        subprocess.run([sys.executable, "-c", "import inside; print(inside.WHERE)"], check=True)
        """,
        model={"cwd": "work", "pythonpath": ["src"]},
    )
    ran = launching.rank(job)
    assert (ran.status, sorted(ran.out.split()), ran.err) == (0, ["sources", "sources", "work"], "")


def test_a_command_of_another_launcher_names_its_own_script(launching: Launching) -> None:
    job = launching.job("print('the job says so')\n")
    other = launching.script("import os, sys\nprint(sys.argv, os.getcwd())\n", "other.py")
    ran = launching.rank(job, "--", str(other), "--lr", "1")
    assert ran.out == f"{[str(other), '--lr', '1']} {launching.output / 'elsewhere'}\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_children_of_multiprocessing_find_the_scripts_functions(launching: Launching, method: str) -> None:
    job = launching.job(
        f"""
        import multiprocessing, sys

        class Task:
            def __init__(self, number): self.number = number

        def work(task):
            return task.number * 2, sys.argv

        print("seen by", __name__)
        if __name__ == "__main__":
            with multiprocessing.get_context({method!r}).Pool(1) as pool:
                print(pool.map(work, [Task(1), Task(2)]))
        """,
        model={"positional": ["x"]},
    )
    plain = launching.python(str(launching.folder / "script.py"), "x")
    ours = launching.rank(job)
    assert (ours.status, ours.out, ours.err) == (plain.status, plain.out, plain.err)
    assert "(4, " in plain.out


def test_children_of_spawned_children_find_them_too(launching: Launching) -> None:
    job = launching.job(
        """
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing

        def double(number): return number * 2

        def through_another(number):
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                return pool.submit(double, number).result()

        if __name__ == "__main__":
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                print(pool.submit(through_another, 21).result())
        """
    )
    ran = launching.rank(job)
    assert (ran.status, ran.out, ran.err) == (0, "42\n", "")


def test_a_spawned_child_of_a_module_keeps_its_package(launching: Launching) -> None:
    launching.script("", "pkg/__init__.py")
    launching.script("def double(number): return number * 2\n", "pkg/parts.py")
    launching.script(
        """
        import multiprocessing
        from .parts import double
        def work(number): return double(number) + 1
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
        """,
        "pkg/train.py",
    )
    ran = launching.rank(launching.job(model={"module": "pkg.train"}))
    assert (ran.status, ran.out, ran.err) == (0, "[3, 5]\n", "")


def test_a_failure_in_a_rank_is_recorded_with_the_scripts_frames_only(launching: Launching) -> None:
    ran = launching.rank(launching.job("def f():\n    raise ValueError('boom')\nf()\n"))
    error = (ran.folder / "turbo" / "ranks" / "0" / "error.json").read_text()
    assert ran.status == 1
    assert "ValueError: boom" in error
    assert "turbo_hydra" not in ran.err
    assert "turbo_hydra/launch" not in error
