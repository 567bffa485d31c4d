# SPDX-License-Identifier: Apache-2.0
"""Run by the tests of transformers in an environment that has it: `python transformers_program.py MODE JSON`.

Small random models of every family take one training step each. The groups come in by `turbo_hydra.apply()` before the
library is imported, unless the mode is about that. What was found is written where the JSON's `answer` says: numbers as
JSON, tensors beside it by `torch.save`.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LENGTH, VOCABULARY = 12, 101
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
    "projection_dim": 32,
}
DECODERS = {
    "gemma": ("GemmaForCausalLM", "GemmaConfig"),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config"),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig"),
    "llama": ("LlamaForCausalLM", "LlamaConfig"),
    "mistral": ("MistralForCausalLM", "MistralConfig"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config"),
}
FAMILIES = (*DECODERS, "siglip", "paligemma")


def library() -> Any:
    """The package, imported when it is first asked for."""
    return importlib.import_module("transformers")


def mended_interpreter() -> None:
    """Let Triton's interpreter round and multiply bfloat16 as devices do; before anything imports triton."""
    path = Path(__file__).resolve().parents[1] / "kernels" / "interpreting.py"
    spec = importlib.util.spec_from_file_location("interpreting", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not there")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def apply(folder: Path, settings: dict[str, Any]) -> Any:
    """Apply the config `transformers` with the settings of a config that extends it."""
    import turbo_hydra

    document = {
        "schema_version": "turbo_hydra/optimization-config/v1",
        "kind": "OptimizationConfig",
        "extends": ["transformers"],
        **settings,
    }
    config = folder / "optimization.yaml"
    config.write_text(json.dumps(document), encoding="utf-8")
    return turbo_hydra.apply(optimization_config_path=config)


def model_of(family: str, dtype: Any, attention: str | None = None) -> Any:
    """A small model with random weights, in training."""
    import torch

    made = library()
    torch.manual_seed(0)
    if family == "siglip":
        config = made.SiglipVisionConfig(**_VISION)
        model = made.SiglipVisionModel
    elif family == "paligemma":
        vision = {"model_type": "siglip_vision_model", **_VISION}
        text = {"model_type": "gemma", **_SIZES}
        config = made.PaliGemmaConfig(
            vision_config=vision, text_config=text, projection_dim=32, hidden_size=32, image_token_index=VOCABULARY - 1
        )
        model = made.PaliGemmaForConditionalGeneration
    else:
        name, config_name = DECODERS[family]
        config = getattr(made, config_name)(**_SIZES)
        model = getattr(made, name)
    if attention is not None:
        config._attn_implementation = attention
    result = model(config)
    for parameter in result.parameters():  # norms begin as ones or zeros, where nothing can be seen of them
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return result.to(dtype).train()


def inputs_of(family: str, dtype: Any) -> dict[str, Any]:
    """A batch with padding in the labels."""
    import torch

    draw = torch.Generator().manual_seed(1)
    if family == "siglip":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=draw).to(dtype)}
    tokens = torch.randint(3, VOCABULARY - 1, (2, LENGTH), generator=draw)
    labels = tokens.clone()
    labels[0, :5] = -100
    labels[1, -2:] = -100
    given: dict[str, Any] = {"input_ids": tokens, "labels": labels, "attention_mask": torch.ones_like(tokens)}
    if family == "paligemma":
        tokens[:, :4] = VOCABULARY - 1  # of 16 x 16 pixels in patches of 8 x 8
        labels[:, :4] = -100
        given |= {
            "pixel_values": torch.randn(2, 3, 16, 16, generator=draw).to(dtype),
            "token_type_ids": (torch.arange(LENGTH) >= 6).long().expand(2, -1),
        }
    return given


def step(model: Any, given: dict[str, Any], call: Any = None) -> dict[str, Any]:
    """Loss and gradients of one step; of a model without a loss, those of a sum over its outputs."""
    import torch

    outputs = (model if call is None else call)(**given)
    if getattr(outputs, "loss", None) is not None:
        loss = outputs.loss
    else:
        hidden = outputs.last_hidden_state.double()
        loss = (hidden.square() * torch.linspace(0.5, 1.5, hidden.numel()).view_as(hidden)).mean()
    loss.backward()
    found = {name: item.grad for name, item in model.named_parameters() if item.grad is not None}
    return {"loss": loss.detach(), "logits": getattr(outputs, "logits", None) is not None, **found}


def cases(task: dict[str, Any]) -> Iterator[tuple[str, str, Any, Any]]:
    """Each family in each dtype: a model and its inputs. `exact` is float64 with the numbers of bfloat16."""
    import torch

    for family in task.get("families", FAMILIES):
        for name in task.get("dtypes", ("float32", "bfloat16")):
            dtype = torch.bfloat16 if name == "exact" else getattr(torch, name)
            model, given = model_of(family, dtype, task.get("attention")), inputs_of(family, dtype)
            if name == "exact":
                model = model.double()
                given = {key: item.double() if item.is_floating_point() else item for key, item in given.items()}
            yield family, name, model, {**given, **task.get("given", {})}


def train(task: dict[str, Any]) -> dict[str, Any]:
    """One step of each family, with what the task says."""
    answer = Path(task["answer"])
    if task.get("interpret"):
        mended_interpreter()
    report = apply(answer.parent, task["apply"]) if "apply" in task else None
    import torch

    torch.set_num_threads(1)
    if task.get("import_first"):
        library()
    found = {}
    for family, name, model, given in cases(task):
        if task.get("checkpointing"):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        call = None
        if "backend" in task:
            torch._dynamo.reset()
            call = torch.compile(model, backend=task["backend"], fullgraph=task.get("fullgraph", False))
        found[f"{family} {name}"] = step(model, given, call)
    torch.save(found, answer.with_suffix(".pt"))
    return {"report": None if report is None else report.to_dict()}


def moments(task: dict[str, Any]) -> dict[str, Any]:
    """The groups come in at some moment of the library's being imported: what was reached, and who held what."""
    answer = Path(task["answer"])
    moment = task["moment"]
    held: Any = None
    if moment != "before":
        library()
    if moment == "after the model":
        model = library().GemmaForCausalLM
        module = sys.modules["transformers.models.gemma.modeling_gemma"]
        held = type(sys)("user_of_it")
        held.rotate = vars(module)["apply_rotary_pos_emb"]
        held.table = {"rotate": held.rotate}
        sys.modules["user_of_it"] = held
    loaded = {name for name in sys.modules if name.startswith("transformers.models.")}
    report = apply(answer.parent, task["apply"])
    after = {name for name in sys.modules if name.startswith("transformers.models.")}
    before = report.to_dict()
    import torch

    model = model_of("gemma", torch.float32)
    step(model, inputs_of("gemma", torch.float32))
    module = sys.modules["transformers.models.gemma.modeling_gemma"]
    return {
        "imported_by_apply": sorted(after - loaded),
        "before": before,
        "after": report.to_dict(),
        "rebound": held is not None and held.rotate is vars(module)["apply_rotary_pos_emb"],
        "is_public": library().GemmaForCausalLM is vars(module)["GemmaForCausalLM"],
    }


def attention(task: dict[str, Any]) -> dict[str, Any]:
    """Which attention models get that were made in the ways in which scripts make them."""
    report = apply(Path(task["answer"]).parent, task["apply"])
    import torch

    made = library()
    name, config_name = DECODERS["llama"]
    config = getattr(made, config_name)(**_SIZES)
    direct = getattr(made, name)(config)
    automatic = made.AutoModelForCausalLM.from_config(getattr(made, config_name)(**_SIZES))
    asked = made.AutoModelForCausalLM.from_config(getattr(made, config_name)(**_SIZES), attn_implementation="eager")
    paligemma = model_of("paligemma", torch.float32)
    step(direct, inputs_of("llama", torch.float32))
    return {
        "direct": direct.config._attn_implementation,
        "inner": direct.model.config._attn_implementation,
        "automatic": automatic.config._attn_implementation,
        "asked": asked.config._attn_implementation,
        "parts": sorted({part.config._attn_implementation for part in paligemma.modules() if hasattr(part, "config")}),
        "report": report.to_dict(),
    }


def liger(task: dict[str, Any]) -> dict[str, Any]:
    """Liger-Kernel patches Gemma, before the groups come in or after."""
    import torch

    def patch(model: Any = None) -> None:
        importlib.import_module("liger_kernel.transformers").apply_liger_kernel_to_gemma(model=model)

    model = None
    if task["order"] == "instance":
        model = model_of("gemma", torch.float32)
        patch(model)
    elif task["order"] == "before":
        patch()
    report = apply(Path(task["answer"]).parent, task["apply"])
    first = report.to_dict()
    if task["order"] == "after the model":
        library().GemmaForCausalLM  # noqa: B018  loads it
    applied = report.to_dict()
    if task["order"].startswith("after"):
        patch()
    last = report.to_dict()
    return {"first": first, "applied": applied, "last": last, "markdown": report.to_markdown()}


def hub_kernels(task: dict[str, Any]) -> dict[str, Any]:
    """The package `kernels` is there; its layers come into a model before the groups, after them or not at all."""
    import torch

    model = None
    if task["order"] == "before":
        model = kernelized(model_of("llama", torch.float32))
    report = apply(Path(task["answer"]).parent, task["apply"]) if "apply" in task else None
    if model is None:
        model = model_of("llama", torch.float32)
        if task["order"] != "never":
            kernelized(model, layers=task["order"] == "after")
    found = step(model, inputs_of("llama", torch.float32))
    torch.save({"llama float32": found}, Path(task["answer"]).with_suffix(".pt"))
    calls = [module.CALLS for name, module in sys.modules.items() if name.startswith("kernel_layers_") and "." in name]
    return {
        "calls": dict(calls[0]) if calls else {},
        "report": None if report is None else report.to_dict(),
        "markdown": "" if report is None else report.to_markdown(),
    }


def kernelized(model: Any, *, layers: bool = True) -> Any:
    """Give a model layers of a repository in a folder, as `use_kernels=True` does those of the hub, or none."""
    made: Any = importlib.import_module("kernels")
    folder = Path(__file__).with_name("kernel_layers")

    def layer(name: str) -> dict[str, Any]:
        return {"cpu": made.LocalLayerRepository(folder, package_name=folder.name, layer_name=name)}

    mapping = {"RMSNorm": layer("Norm"), "rotary_pos_emb": layer("Rotary")} if layers else {}
    with made.use_kernel_mapping(mapping, inherit_mapping=False):
        return made.kernelize(model, mode=made.Mode.TRAINING, device="cpu")


MODES = {"train": train, "moments": moments, "attention": attention, "liger": liger, "hub_kernels": hub_kernels}

if __name__ == "__main__":
    mode, text = sys.argv[1:]
    given = json.loads(text)
    Path(given["answer"]).write_text(json.dumps(MODES[mode](given), default=str), encoding="utf-8")
