# SPDX-License-Identifier: Apache-2.0
"""Groups without which OpenPI's PyTorch training does not run as its packages come from the package index."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.models.openpi.names import HERE, SERVED
from turbo_hydra.compatibility import before_import, import_alias, replace_import

_SOURCE = f"{HERE}.transformers_replace.source"


@dataclass(frozen=True)
class FakeData:
    """Options of `openpi.compat_fake_data`."""

    masks: Literal["all_valid", "libero"] = field(
        default="all_valid",
        metadata={
            "help": "all_valid: every camera and token; libero: the right wrist's camera masked, prompts of 30 to 59 % "
            "of the length that they are padded to"
        },
    )


group(
    "openpi.transformers_replace",
    replace_import("transformers.models.gemma.configuration_gemma", source=_SOURCE),
    replace_import("transformers.models.gemma.modeling_gemma", source=_SOURCE),
    replace_import("transformers.models.paligemma.modeling_paligemma", source=_SOURCE),
    replace_import("transformers.models.siglip.check", source=_SOURCE),
    replace_import("transformers.models.siglip.modeling_siglip", source=_SOURCE),
    compatibility_check=f"{HERE}.transformers_replace.check",
    about=About(
        purpose="compatibility",
        why="OpenPI needs transformers 4.53.2 with five files of its own, and has them copied over the installed "
        "package, for every program that uses it. They are served from OpenPI's checkout instead, to this run alone; "
        "the installed package stays as it came from the package index.",
        numerics="bitwise",
        validated="transformers 4.53.2 with the files of OpenPI at 15a9616, torch 2.13 on CPU",
        until="OpenPI's classes are its own, or those of a transformers release",
    ),
)

group(
    "openpi.compat_python310",
    import_alias("datetime", "datetime.timezone.utc", "UTC"),
    before_import("lerobot.common.datasets.lerobot_dataset", f"{HERE}.compat_python310.list_feature"),
    about=About(
        purpose="compatibility",
        why="OpenPI reads datetime.UTC, which Python 3.10 lacks, and data sets written by newer releases of `datasets` "
        "have the feature type List, which those before 4.0 lack. Each is added where it is missing, and only there: "
        "datetime.timezone.utc is the same object, and what those releases call Sequence is a List of values.",
        numerics="bitwise",
        validated="Python 3.10 and 3.11; datasets 3.6.0",
        until="OpenPI's oldest Python has datetime.UTC and its `datasets` is 4.0 or newer",
    ),
)

group(
    "openpi.compat_fake_data",
    wrap("openpi.training.data_loader.FakeDataset.__getitem__", f"{HERE}.compat_fake_data.item", stack=True),
    wrap(
        "transformers.models.paligemma.modeling_paligemma.PaliGemmaMultiModalProjector.__init__",
        f"{HERE}.compat_fake_data.projector",
    ),
    depends_on=SERVED,
    options=FakeData,
    about=About(
        purpose="compatibility",
        why="OpenPI's configurations with fake data (debug_pi05) do not run in PyTorch: the images come as float with "
        "the channels last, where only images of real data are turned, and the projection of image features is 2048 "
        "wide whatever the language model's width. Both are mended. The fake masks say that nothing is valid, which "
        "would make trimming look wonderful; they are replaced by those of the option `masks`. Real data is not "
        "touched: the group is off unless asked for.",
        numerics="changes training",
        validated="debug_pi05 at 15a9616, torch 2.13 on CPU, float32; one and two ranks, two loader workers each",
        until="OpenPI's debug_pi05 runs in PyTorch",
    ),
)
