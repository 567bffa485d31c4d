# SPDX-License-Identifier: Apache-2.0
"""A training command as people type it, with the script's place taken by the entry of a rank.

Only that place changes: the launchers that stand before it run as they are, and know nothing of us.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_hydra.launch.job import JobError

RANK = "turbo_hydra.launch.rank"

_PYTHON = re.compile(r"python(\d+(\.\d+)*)?$")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "source", "."})
_HERE = "'turbo-train run' rewrites python, torchrun, accelerate launch and deepspeed"


@dataclass(frozen=True)
class _Launcher:
    """The options of a launcher: those without a value, and `-m`; each other option takes one."""

    flags: frozenset[str]
    module: str = "-m"
    refused: frozenset[str] = frozenset({"no_python"})
    dropped: frozenset[str] = frozenset()


_TORCHRUN = _Launcher(
    flags=frozenset({"standalone", "virtual_local_rank", "use_env"}),
    # It asks torchrun to use runpy in its own process, which a rank's entry replaces anyway.
    dropped=frozenset({"run_path"}),
)
_ACCELERATE = _Launcher(
    flags=frozenset(
        {
            *("quiet", "q", "cpu", "multi_gpu", "tpu", "enable_cpu_affinity", "dynamo_use_fullgraph", "debug"),
            *("dynamo_use_dynamic", "dynamo_use_regional_compilation", "use_deepspeed", "use_fsdp", "use_megatron_lm"),
            *("use_parallelism_config", "same_network", "tpu_cluster", "no_tpu_cluster", "tpu_use_sudo"),
            *("downcast_bf16", "fp8_use_autocast_during_eval"),
        }
    ),
)
_DEEPSPEED = _Launcher(
    flags=frozenset(
        {
            *("no_local_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid", "elastic_training", "quiet", "q"),
            "bind_cores_to_rank",
        }
    ),
    module="--module",
)
_MODULES = {
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed.launcher.runner": _DEEPSPEED,
}
_PROGRAMS = {"torchrun": _TORCHRUN, "accelerate-launch": _ACCELERATE, "deepspeed": _DEEPSPEED}


def rewrite(command: Sequence[str], job_path: str) -> list[str]:
    """Return the command with the rank's entry in the script's place.

    Parameters
    ----------
    command : sequence of str
        What follows `--`: `torchrun A s.py B`, `python A s.py B`, `accelerate launch A s.py B`, `deepspeed A s.py B`,
        each with `-m MODULE` as well, or a Python script that can be executed.
    job_path : str
        The job's file.

    Raises
    ------
    JobError
        If the command starts no Python script that can be found in it.

    Examples
    --------
    >>> rewrite(["torchrun", "--nproc-per-node=8", "train.py", "cfg.py"], "JOB")
    ['torchrun', '--nproc-per-node=8', '-m', 'turbo_hydra.launch.rank', 'JOB', '--', 'train.py', 'cfg.py']
    """
    words = [str(word) for word in command]
    if not words:
        raise JobError("give the command to run after --, such as: turbo-train run -- torchrun --nproc-per-node=2 s.py")
    program, name = words[0], Path(words[0]).name
    if name in _PROGRAMS:
        return [program, *_launched(words[1:], _PROGRAMS[name], name, job_path)]
    if name == "accelerate":
        if words[1:2] != ["launch"]:
            raise JobError("only 'accelerate launch' starts ranks; give it after --, with its script")
        return [program, "launch", *_launched(words[2:], _ACCELERATE, "accelerate launch", job_path)]
    if _PYTHON.match(name):
        return [program, *_python(words[1:], job_path)]
    return _program(words, job_path)


def _python(words: list[str], job_path: str) -> list[str]:
    """Rewrite what follows the interpreter."""
    for index, word in enumerate(words):
        if word in ("-W", "-X", "--check-hash-based-pycs") or words[index - 1 : index] in (
            ["-W"],
            ["-X"],
            ["--check-hash-based-pycs"],
        ):
            continue
        if word == "-m" or (word.startswith("-m") and not word.startswith("--")):
            module, rest = (word[2:], words[index + 1 :]) if word != "-m" else _first(words[index + 1 :], "python -m")
            launcher = _MODULES.get(module)
            if launcher is None and module == "accelerate.commands.accelerate_cli":
                launcher, rest = _ACCELERATE, rest[1:]
                return [*words[:index], "-m", module, "launch", *_launched(rest, launcher, module, job_path)]
            if launcher is not None:
                return [*words[:index], "-m", module, *_launched(rest, launcher, module, job_path)]
            return [*words[:index], "-m", RANK, job_path, "--", "-m", module, *rest]
        if word.startswith("-c") or word == "-":
            raise JobError(f"'python {word}' has no file whose functions could be replaced; put the code into a script")
        if not word.startswith("-"):
            _check_script(word)
            return [*words[:index], "-m", RANK, job_path, "--", *words[index:]]
    raise JobError("the command 'python' names no script")


def _launched(words: list[str], launcher: _Launcher, name: str, job_path: str) -> list[str]:
    """Rewrite what follows the name of a launcher."""
    kept: list[str] = []
    module = False
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        position += 1
        option = word.lstrip("-").partition("=")[0].replace("-", "_")
        if word in ("-m", "--module"):
            module = True
        elif option in launcher.refused:
            raise JobError(f"'{name} {word}' starts a program that is not a Python script; leave {word} out")
        elif option in launcher.dropped:
            continue
        elif option in ("h", "help"):
            raise JobError(f"'{name} {word}' starts no script; call it without turbo-train")
        else:
            kept.append(word)
            if "=" not in word and option not in launcher.flags and not re.match(r"-\w.", word):
                kept += words[position : position + 1]
                position += 1
    target, arguments = _first(words[position:], name)
    if not module:
        _check_script(target)
    return [*kept, launcher.module, RANK, job_path, "--", *(["-m"] if module else []), target, *arguments]


def _first(words: list[str], name: str) -> tuple[str, list[str]]:
    if not words:
        raise JobError(f"the command '{name}' names no script")
    return words[0], words[1:]


def _check_script(path: str) -> None:
    if path.endswith((".sh", ".bash", ".zsh")):
        raise JobError(f"{path} is a shell script, which cannot be rewritten; give the command that it runs after --")
    if not os.path.isfile(path):
        raise JobError(f"there is no script {path} in {os.getcwd()}; {_HERE}")
    if _is_shell(_shebang(path)):
        raise JobError(f"{path} is a shell script, which cannot be rewritten; give the command that it runs after --")


def _program(words: list[str], job_path: str) -> list[str]:
    """Rewrite a Python script that is started by its name, as console scripts of packages are."""
    name = Path(words[0]).name
    if name in _SHELLS:
        raise JobError(f"'{name}' runs a shell script, which cannot be rewritten; give the command that it runs")
    # Python scripts that the user stands beside may be named without a folder, as after `python`.
    found = shutil.which(words[0]) or (words[0] if os.path.isfile(words[0]) else None)
    if found is None:
        raise JobError(f"there is no program {words[0]}; {_HERE}")
    interpreter = _shebang(found)
    if found.endswith((".sh", ".bash", ".zsh")) or _is_shell(interpreter):
        raise JobError(f"{words[0]} is a shell script, which cannot be rewritten; give the command that it runs")
    if not any(_PYTHON.match(Path(word).name) for word in interpreter) and not found.endswith(".py"):
        raise JobError(f"{words[0]} is no Python program; {_HERE}")
    python = [word for word in interpreter if Path(word).name != "env" and word != "-S"] or [sys.executable]
    return [*python, "-m", RANK, job_path, "--", os.path.abspath(found), *words[1:]]


def _shebang(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            line = file.readline(512)
    except OSError:
        return []
    return line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []


def _is_shell(interpreter: Sequence[str]) -> bool:
    return any(Path(word).name in _SHELLS for word in interpreter)
