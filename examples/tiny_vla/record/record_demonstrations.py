#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record the demonstrations in ../data: scripted Meta-World experts, rendered without a screen.

    python3.11 -m venv venv && venv/bin/pip install -r record/requirements.txt
    MUJOCO_GL=egl venv/bin/python record/record_demonstrations.py --output data

Every episode has its own object or goal position. Only episodes in which the expert succeeds are kept. The last
episodes of each task are held out: their positions occur in no training episode.
"""

import argparse
import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import metaworld
import mujoco
import numpy as np
from metaworld.policies import ENV_POLICY_MAP

TASKS = {
    "reach-v3": "reach the red ball",
    "drawer-close-v3": "close the green drawer",
    "button-press-topdown-v3": "press the red button from above",
}
CAMERAS = {"base": "topview", "wrist": "gripperPOV"}
ACTION_REPEAT = 2  # simulator steps an action holds: 40 actions a second
MAX_STEPS, HOLD_STEPS = 150, 4
PROPRIO_SIZE = 4  # hand x, y, z in metres, gripper opening in [0, 1]
SCENE_EXTRAS = (
    mujoco.mjtRndFlag.mjRND_SHADOW,
    mujoco.mjtRndFlag.mjRND_REFLECTION,
    mujoco.mjtRndFlag.mjRND_SKYBOX,
    mujoco.mjtRndFlag.mjRND_HAZE,
)


@dataclass
class Episode:
    """One successful episode of T steps."""

    frames: dict[str, np.ndarray]  # camera -> [T, height, width, 3] uint8
    proprio: np.ndarray  # [T, 4] float32
    actions: np.ndarray  # [T, 4] float32 in [-1, 1]


def make_renderer(model: mujoco.MjModel, size: int) -> mujoco.Renderer:
    """A renderer without antialiasing and shadows: ten times faster, and nothing is lost at this size."""
    model.vis.quality.offsamples = 0
    model.vis.quality.shadowsize = 0
    renderer = mujoco.Renderer(model, size, size)
    for flag in SCENE_EXTRAS:
        renderer.scene.flags[flag] = 0
    return renderer


def record_episode(env, policy, renderer: mujoco.Renderer, seed: int) -> Episode | None:
    """Run the expert until it has succeeded for ``HOLD_STEPS`` steps; None if it never does."""
    observation, _ = env.reset(seed=seed)
    frames: dict[str, list[np.ndarray]] = {name: [] for name in CAMERAS}
    proprio, actions = [], []
    held = 0
    for _ in range(MAX_STEPS):
        for name, camera in CAMERAS.items():
            renderer.update_scene(env.data, camera=camera)
            frames[name].append(renderer.render().copy())
        action = np.clip(policy.get_action(observation), -1.0, 1.0).astype(np.float32)
        proprio.append(observation[:PROPRIO_SIZE].astype(np.float32))
        actions.append(action)
        for _ in range(ACTION_REPEAT):
            observation, _, _, _, info = env.step(action)
        held = held + 1 if info["success"] else 0
        if held >= HOLD_STEPS:
            return Episode({k: np.stack(v) for k, v in frames.items()}, np.stack(proprio), np.stack(actions))
    return None


def record_task(task: str, train: int, held_out: int, size: int, seed: int) -> tuple[list[Episode], list[bool]]:
    """Episodes of one task and, for each, whether it is held out."""
    benchmark = metaworld.MT1(task, seed=seed)
    env = benchmark.train_classes[task]()
    env.set_task(benchmark.train_tasks[0])
    env.reset(seed=seed)
    renderer = make_renderer(env.model, size)
    episodes: list[Episode] = []
    for index, position in enumerate(benchmark.train_tasks):
        if len(episodes) == train + held_out:
            break
        env.set_task(position)
        episode = record_episode(env, ENV_POLICY_MAP[task](), renderer, seed + index)
        if episode is None:
            print(f"{task}: the expert failed at position {index}, episode left out")
            continue
        episodes.append(episode)
    renderer.close()
    if len(episodes) < train + held_out:
        raise SystemExit(f"{task}: only {len(episodes)} successful episodes, {train + held_out} wanted")
    return episodes, [False] * train + [True] * held_out


def save_task(path: Path, task: str, episodes: list[Episode], held_out: list[bool]) -> None:
    """Write one task as npz.

    Frames are stored with time as the LAST axis: most pixels do not change from one frame to the next, and side by
    side they compress several times better.
    """
    lengths = [len(episode.actions) for episode in episodes]
    np.savez_compressed(
        path,
        task=np.array(task),
        instruction=np.array(TASKS[task]),
        proprio=np.concatenate([e.proprio for e in episodes]),
        actions=np.concatenate([e.actions for e in episodes]),
        episode=np.repeat(np.arange(len(episodes), dtype=np.int32), lengths),
        held_out=np.array(held_out),
        **{
            f"{name}_frames": np.concatenate([e.frames[name] for e in episodes]).transpose(1, 2, 3, 0)
            for name in CAMERAS
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent.parent / "data")
    parser.add_argument("--train", type=int, default=13, help="training episodes a task")
    parser.add_argument("--held-out", type=int, default=3, help="held-out episodes a task")
    parser.add_argument("--size", type=int, default=48, help="height and width of a frame")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    warnings.filterwarnings("ignore", message="Constant")  # the experts ask for more than the robot can do
    args.output.mkdir(parents=True, exist_ok=True)
    sums = []
    for task in TASKS:
        episodes, held_out = record_task(task, args.train, args.held_out, args.size, args.seed)
        path = args.output / f"{task}.npz"
        save_task(path, task, episodes, held_out)
        steps = sum(len(e.actions) for e in episodes)
        sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
        print(f"{task}: {len(episodes)} episodes, {steps} steps, {path.stat().st_size / 1e6:.2f} MB")
    (args.output / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()
