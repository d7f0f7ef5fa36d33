"""The weights in the layout of Hugging Face."""

import json

import torch
from safetensors.torch import save_file

import model
from training import RANKS, checkpoint_path, last_checkpoint


def export(work):
    """Writes the averaged weights of the last checkpoint as bfloat16, with the configs, beside the tokenizer."""
    step = last_checkpoint(work / "state")
    states = [torch.load(checkpoint_path(work / "state", rank, step)) for rank in range(RANKS)]
    weights = {name: w.bfloat16().contiguous() for name, w in model.weights_of(states[0]["average"]).items()}
    save_file(weights, work / "hf/model.safetensors", dict(format="pt"))
    (work / "hf/model.safetensors").chmod(0o644)
    (work / "hf/config.json").write_text(json.dumps(model.CONFIG, indent=1))
    (work / "hf/generation_config.json").write_text(json.dumps(model.GENERATION_CONFIG, indent=1))
    tokens, targets = sum(state["counts"] for state in states).tolist()
    print("step", step, "tokens", tokens, "learned tokens", targets)
