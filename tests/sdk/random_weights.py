"""A model of random weights that talks: the demo model with the values of each tensor shuffled."""

import array
import json
import pathlib
import random
import shutil

_DEMO = pathlib.Path(__file__).parents[2] / "models" / "demo"


def write_random_model(folder, seed):
    """Writes it to `folder`, which does not exist yet."""
    shutil.copytree(_DEMO, folder)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    tensors = json.loads(data[8:begin])
    shuffled = bytearray(data)
    shuffler = random.Random(seed)
    for name, tensor in tensors.items():
        if name == "__metadata__":
            continue
        assert tensor["dtype"] in ("BF16", "F16")
        first, last = (begin + offset for offset in tensor["data_offsets"])
        values = array.array("H", data[first:last])
        shuffler.shuffle(values)
        shuffled[first:last] = values.tobytes()
    path.write_bytes(shuffled)
