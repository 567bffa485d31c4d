# SPDX-License-Identifier: Apache-2.0
"""Builds mmcv's own operator for deformable attention, alone, for `benchmarks/bevformer.py --operator`.

    python benchmarks/bevformer_operator.py --sources mmcv-1.7.0.tar.gz --output FOLDER

prints the library's path. mmcv as a whole does not compile against today's torch; its kernel for this operator does,
with a header that torch has since moved. It takes nvcc, ninja and a torch for CUDA; the sources are mmcv's, of its
source distribution or a checkout, and stay where they are.
"""

from __future__ import annotations

import argparse
import tarfile
from collections.abc import Sequence
from pathlib import Path

# Named by what mmcv's Python calls, with its keyword.
BINDING = """
#include <torch/extension.h>

at::Tensor ms_deform_attn_cuda_forward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                       const at::Tensor&, const int);
void ms_deform_attn_cuda_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  const at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&,
                                  const int);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using pybind11::arg;
  m.def("ms_deform_attn_forward", &ms_deform_attn_cuda_forward, arg("value"), arg("value_spatial_shapes"),
        arg("value_level_start_index"), arg("sampling_locations"), arg("attention_weights"), arg("im2col_step"));
  m.def("ms_deform_attn_backward", &ms_deform_attn_cuda_backward, arg("value"), arg("value_spatial_shapes"),
        arg("value_level_start_index"), arg("sampling_locations"), arg("attention_weights"), arg("grad_output"),
        arg("grad_value"), arg("grad_sampling_loc"), arg("grad_attn_weight"), arg("im2col_step"));
}
"""
# Where mmcv looks for atomic additions, and where torch has them now.
ATOMICS = "#include <ATen/cuda/Atomic.cuh>\n"


def prepare(sources: Path, output: Path) -> tuple[list[str], list[str]]:
    """Source files, and folders of headers."""
    if sources.is_file():
        with tarfile.open(sources) as archive:
            archive.extractall(output / "mmcv", filter="data")
        sources = next((output / "mmcv").iterdir())
    kernels = sources / "mmcv" / "ops" / "csrc"
    binding, atomics = output / "binding.cpp", output / "include" / "THC" / "THCAtomics.cuh"
    atomics.parent.mkdir(parents=True, exist_ok=True)
    atomics.write_text(ATOMICS, encoding="utf-8")
    binding.write_text(BINDING, encoding="utf-8")
    operator = kernels / "pytorch" / "cuda" / "ms_deform_attn_cuda.cu"
    if not operator.is_file():
        raise SystemExit(f"{sources} has no {operator.relative_to(sources)}; give mmcv 1.x as source")
    headers = (output / "include", kernels / "common", kernels / "common" / "cuda")
    return [str(binding), str(operator)], [str(folder) for folder in headers]


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, and print where the library is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True, help="mmcv's source distribution, or its folder")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(arguments)
    output = args.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    files, headers = prepare(args.sources.resolve(), output)
    from torch.utils.cpp_extension import load

    built = load(
        name="mmcv_operator",
        sources=files,
        extra_include_paths=headers,
        extra_cflags=["-O2", "-DMMCV_WITH_CUDA"],
        extra_cuda_cflags=["-O2", "-DMMCV_WITH_CUDA"],
        build_directory=str(output),
    )
    print(built.__file__)


if __name__ == "__main__":
    main()
