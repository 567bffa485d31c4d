# SPDX-License-Identifier: Apache-2.0
from functools import partial

from mmcv.parallel import collate
from torch.utils.data import DataLoader


def build_dataloader(
    dataset,
    samples_per_gpu,
    workers_per_gpu,
    num_gpus=1,
    dist=True,
    shuffle=True,
    seed=None,
    shuffler_sampler=None,
    nonshuffler_sampler=None,
    **kwargs,
):
    return DataLoader(
        dataset,
        batch_size=samples_per_gpu,
        num_workers=workers_per_gpu,
        collate_fn=partial(collate, samples_per_gpu=samples_per_gpu),
        pin_memory=False,
        persistent_workers=workers_per_gpu > 0,
        **kwargs,
    )
