# SPDX-License-Identifier: Apache-2.0


class DataContainer:
    def __init__(self, data, stack=False, padding_value=0, cpu_only=False, pad_dims=2):
        self._data, self.stack, self.padding_value = data, stack, padding_value
        self.cpu_only, self.pad_dims = cpu_only, pad_dims

    @property
    def data(self):
        return self._data


def collate(batch, samples_per_gpu=1):
    first = batch[0]
    return {key: DataContainer([[item[key] for item in batch]], cpu_only=key == "img_metas") for key in first}
