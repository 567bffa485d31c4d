# SPDX-License-Identifier: Apache-2.0
"""Made-up data in nuScenes' layout, as far as BEVFormer's training reads it: camera images and the file of frames.

    python make_data.py DIR                             # images as large as nuScenes' own
    python make_data.py DIR --width 256 --height 128    # small ones, for a CPU

A car drives along a curve past boxes that stand still, and six cameras see them as filled rectangles. DIR gets

    samples/CAM_*/*.jpg
    nuscenes_infos_temporal_train.pkl                   # what upstream's tools/create_data.py makes of nuScenes

The same seed gives the same data. Nothing of nuScenes' own is in it, and its tables (v1.0-*/*.json), which evaluation
needs, are not made.
"""

from __future__ import annotations

import argparse
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

# Where each camera looks, in degrees to the left of the car's front.
CAMERAS = {
    "CAM_FRONT": 0,
    "CAM_FRONT_RIGHT": -55,
    "CAM_FRONT_LEFT": 55,
    "CAM_BACK": 180,
    "CAM_BACK_LEFT": 110,
    "CAM_BACK_RIGHT": -110,
}
# Width, length and height of a thing of each class, in metres.
CLASSES = {
    "car": (1.9, 4.6, 1.7),
    "truck": (2.5, 7.0, 2.9),
    "construction_vehicle": (2.8, 6.5, 3.2),
    "bus": (2.9, 11.0, 3.5),
    "trailer": (2.9, 12.0, 3.9),
    "barrier": (2.5, 0.5, 1.0),
    "motorcycle": (0.8, 2.1, 1.5),
    "bicycle": (0.6, 1.7, 1.3),
    "pedestrian": (0.7, 0.7, 1.8),
    "traffic_cone": (0.4, 0.4, 1.1),
}
SPEED, TURN, INTERVAL = 5.0, 0.05, 0.5  # metres a second, radians a frame, seconds between frames
HEIGHT_OF_CAMERAS, HEIGHT_OF_LIDAR = 1.5, 1.8
Array = np.ndarray[Any, Any]


def about_z(angle: float) -> Array:
    """The rotation about the vertical axis."""
    cos, sin = math.cos(angle), math.sin(angle)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])


def quaternion_about_z(angle: float) -> list[float]:
    return [math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)]


# The lidar's axes are right, front, up; the car's front, left, up; a camera's right, down, front.
LIDAR_TO_CAR = about_z(-math.pi / 2)
CAMERA_TO_CAR = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])


def camera(name: str, width: int, height: int) -> dict[str, Any]:
    """Where a camera is from the lidar, and what it projects with."""
    to_lidar = LIDAR_TO_CAR.T
    angle = math.radians(CAMERAS[name])
    place = about_z(angle) @ np.array([1.0, 0.0, 0.0]) + np.array([0.0, 0.0, HEIGHT_OF_CAMERAS - HEIGHT_OF_LIDAR])
    focal = 0.79 * width
    return {
        "sensor2lidar_rotation": to_lidar @ about_z(angle) @ CAMERA_TO_CAR,
        "sensor2lidar_translation": to_lidar @ place,
        "cam_intrinsic": np.array([[focal, 0.0, width / 2], [0.0, focal, height / 2], [0.0, 0.0, 1.0]]),
    }


def draw(
    view: dict[str, Any], boxes: Array, angles: Array, names: Array, width: int, height: int, random: Any
) -> Image.Image:
    """What a camera sees: ground, sky, and the boxes from far to near."""
    rows = np.linspace(0, 1, height)[:, None, None]
    image = 120 + 60 * (rows > 0.5) + random.integers(-20, 20, (height, width, 3))
    picture = Image.fromarray(image.clip(0, 255).astype(np.uint8))
    pencil = ImageDraw.Draw(picture)
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    for index in np.argsort(-np.hypot(boxes[:, 0], boxes[:, 1])):
        points = corners * boxes[index, 3:6] @ about_z(angles[index]).T + boxes[index, :3]
        seen = (points - view["sensor2lidar_translation"]) @ view["sensor2lidar_rotation"]
        if (seen[:, 2] < 0.5).any():
            continue
        pixels = seen @ view["cam_intrinsic"].T
        pixels = pixels[:, :2] / pixels[:, 2:]
        (left, top), (right, bottom) = pixels.min(0), pixels.max(0)
        if right > 0 and left < width and bottom > 0 and top < height:
            shade = 20 + 22 * list(CLASSES).index(names[index])
            pencil.rectangle([left, top, right, bottom], fill=(shade, 255 - shade, (3 * shade) % 256))
    return picture


def scene(
    folder: Path, number: int, frames: int, things: int, size: tuple[int, int], seed: int
) -> list[dict[str, Any]]:
    """The frames of one drive; writes their images."""
    random = np.random.default_rng([seed, number])
    width, height = size
    length = max(40.0, frames * SPEED * INTERVAL)
    kinds = random.choice(list(CLASSES), things)
    places = np.stack([random.uniform(-20, length, things), random.uniform(4, 25, things)], 1)
    places[:, 1] *= random.choice([-1, 1], things)
    headings = random.uniform(-math.pi, math.pi, things)
    sizes = np.array([CLASSES[kind] for kind in kinds])
    cameras = {name: camera(name, width, height) for name in CAMERAS}
    infos = []
    for index in range(frames):
        heading = TURN * index
        at = np.array([SPEED * INTERVAL * index, 0.5 * TURN * SPEED * INTERVAL * index**2, 0.0])
        # From the world's axes over the car's to the lidar's.
        ground = np.concatenate([places, sizes[:, 2:] / 2], 1) - at
        centres = (ground @ about_z(heading) - [0.0, 0.0, HEIGHT_OF_LIDAR]) @ LIDAR_TO_CAR
        # A length lies along the lidar's second axis, turned by this; the files have it as BEVFormer's mmdet3d counts.
        angles = headings - heading
        boxes = np.concatenate([centres, sizes, -(angles + math.pi)[:, None]], 1)
        token = f"scene{number:02d}-frame{index:03d}"
        views = {}
        for name, view in cameras.items():
            file = folder / "samples" / name / f"{token}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            draw(view, boxes, angles, kinds, width, height, random).save(file, quality=90)
            views[name] = {"data_path": str(file), "type": name, **view}
        can_bus = np.zeros(18)
        can_bus[:3], can_bus[3:7], can_bus[13] = at, quaternion_about_z(heading), SPEED
        infos.append(
            {
                "token": token,
                "prev": f"scene{number:02d}-frame{index - 1:03d}" if index else "",
                "next": f"scene{number:02d}-frame{index + 1:03d}" if index + 1 < frames else "",
                "scene_token": f"scene{number:02d}",
                "frame_idx": index,
                "timestamp": int((number * 1000 + index * INTERVAL) * 1e6),
                "lidar_path": str(folder / "samples" / "LIDAR_TOP" / f"{token}.bin"),
                "sweeps": [],
                "cams": views,
                "can_bus": can_bus,
                "lidar2ego_translation": [0.0, 0.0, HEIGHT_OF_LIDAR],
                "lidar2ego_rotation": quaternion_about_z(-math.pi / 2),
                "ego2global_translation": at.tolist(),
                "ego2global_rotation": quaternion_about_z(heading),
                "gt_boxes": boxes,
                "gt_names": np.array(kinds),
                "gt_velocity": np.zeros((things, 2)),
                "num_lidar_pts": np.full(things, 10),
                "num_radar_pts": np.zeros(things, dtype=int),
                "valid_flag": np.ones(things, dtype=bool),
            }
        )
    return infos


def main() -> None:
    parser = argparse.ArgumentParser(description="Made-up data in nuScenes' layout, for BEVFormer's training.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scenes", type=int, default=1)
    parser.add_argument("--frames", type=int, default=4, help="of each scene")
    parser.add_argument("--boxes", type=int, default=20, help="things that stand around in each scene")
    parser.add_argument("--width", type=int, default=1600)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder, size = given.folder.absolute(), (given.width, given.height)
    infos = [
        info
        for number in range(given.scenes)
        for info in scene(folder, number, given.frames, given.boxes, size, given.seed)
    ]
    file = folder / "nuscenes_infos_temporal_train.pkl"
    file.write_bytes(pickle.dumps({"infos": infos, "metadata": {"version": "v1.0-mini"}}))
    print(f"{len(infos)} frames, {len(CAMERAS)} images of {given.width}x{given.height} each: {file}")


if __name__ == "__main__":
    main()
