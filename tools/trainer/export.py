"""The weights in the layout of Hugging Face."""

import json

import torch
from safetensors.torch import load_file, save_file

import model
from training import RANKS, checkpoint_path, last_checkpoint


def export(work, other, share):
    """Writes the averaged weights of the last checkpoint as bfloat16, with the configs, beside the tokenizer.

    other: a model's folder, or None; the weights written are `share` of the checkpoint's and the rest of the model's.
    """
    step = last_checkpoint(work / "state")
    states = [torch.load(checkpoint_path(work / "state", rank, step)) for rank in range(RANKS)]
    flat = states[0]["average"]
    if other:
        flat = share * flat + (1 - share) * model.flat_of(load_file(other / "model.safetensors"))
    weights = {name: w.bfloat16().contiguous() for name, w in model.weights_of(flat).items()}
    save_file(weights, work / "hf/model.safetensors", dict(format="pt"))
    (work / "hf/model.safetensors").chmod(0o644)
    (work / "hf/config.json").write_text(json.dumps(model.CONFIG, indent=1))
    (work / "hf/generation_config.json").write_text(json.dumps(model.GENERATION_CONFIG, indent=1))
    tokens, targets = sum(state["counts"] for state in states).tolist()
    print("step", step, "tokens", tokens, "learned tokens", targets)
