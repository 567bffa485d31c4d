# SPDX-License-Identifier: Apache-2.0
"""A folder that lerobot-train can train PI0 and PI0.5 in without a download: recorded demonstrations, and a tokenizer.

    python prepare.py FOLDER

writes FOLDER/demonstrations, the episodes of ../tiny_vla/data as a data set of lerobot's own format, and
FOLDER/google/paligemma-3b-pt-224, a small tokenizer where lerobot looks for Gemma's when FOLDER is the working folder.
It has 350 tokens learned from the instructions: enough to train on them, and no use for Gemma's weights.
"""

import argparse
from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

DATA = Path(__file__).resolve().parents[1] / "tiny_vla" / "data"
CAMERAS = ("base", "wrist")
FPS = 40
TOKENS = 350
# The name is a number in lerobot's code: AutoTokenizer takes a folder of that name before it asks the hub.
TOKENIZER = Path("google", "paligemma-3b-pt-224")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=16, help="of each of the three tasks, at most")
    args = parser.parse_args()
    instructions, frames = write_demonstrations(args.folder / "demonstrations", args.episodes)
    write_tokenizer(args.folder / TOKENIZER, instructions)
    print(f"{args.folder}: {frames} frames of {len(instructions)} tasks, a tokenizer of {TOKENS} tokens")


def write_demonstrations(folder: Path, episodes: int) -> tuple[list[str], int]:
    """Write the first `episodes` of each task; returns the instructions and the number of frames."""
    image = {"dtype": "image", "shape": (48, 48, 3), "names": ["height", "width", "channel"]}
    dataset = LeRobotDataset.create(
        repo_id="local/demonstrations",
        fps=FPS,
        root=folder,
        use_videos=False,
        features={
            **{f"observation.images.{name}": image for name in CAMERAS},
            "observation.state": {"dtype": "float32", "shape": (4,), "names": ["x", "y", "z", "opening"]},
            "action": {"dtype": "float32", "shape": (3,), "names": ["dx", "dy", "dz"]},
        },
    )
    instructions, count = [], 0
    for path in sorted(DATA.glob("*.npz")):
        with np.load(path) as file:
            instructions.append(str(file["instruction"]))
            # Time is the last axis, where pictures compress well.
            pictures = {name: np.moveaxis(file[f"{name}_frames"], -1, 0) for name in CAMERAS}
            for episode in range(min(episodes, int(file["episode"].max()) + 1)):
                for step in np.flatnonzero(file["episode"] == episode):
                    dataset.add_frame(
                        {
                            **{f"observation.images.{name}": pictures[name][step] for name in CAMERAS},
                            "observation.state": file["proprio"][step],
                            # Without the gripper, which keeps still in each of these tasks: lerobot divides by the
                            # range of an action within an episode.
                            "action": file["actions"][step, :3],
                            "task": instructions[-1],
                        }
                    )
                    count += 1
                dataset.save_episode()
    dataset.finalize()
    return instructions, count


def write_tokenizer(folder: Path, instructions: list[str]) -> None:
    """Learn byte pairs from the instructions, as lerobot puts them: with the state as numbers."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    numbers = " ".join(str(number) for number in range(256))
    texts = [f"Task: {text}, State: {numbers};\nAction: " for text in instructions]
    tokenizer.train_from_iterator(texts, trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        padding_side="right",
    ).save_pretrained(folder)


if __name__ == "__main__":
    main()
