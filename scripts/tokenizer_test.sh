#!/usr/bin/env bash
# Compares the tokenizers of all families (tests/data/tokenizers, and the demo model's) with Python's `tokenizers` on
# random Unicode strings, 10,000 of each (tests/text/tokenizer_reference.py). The reference comes from PyPI, once per
# change of the pin, into the folder tokenizers beside the binary.
#   scripts/tokenizer_test.sh [--baton FILE] [--strings 10000] [--seed 1]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/python_client.sh
require python3
folder=$(dirname "$baton")/tokenizers
program=$(dirname "$baton")/tests/text/encode_lines
[ -x "$program" ] || { echo "no $program; build it: ninja -C build/release encode_lines" >&2; exit 1; }
pins=tests/text/requirements.txt
if ! { python3 --version && cat $pins; } | cmp -s - "$folder/pins"; then
  rm -rf "$folder"
  mkdir -p "$folder"
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r $pins || no_registry PyPI
  { python3 --version && cat $pins; } >"$folder/pins"
fi
exec "$folder/venv/bin/python" -B tests/text/tokenizer_reference.py --program "$program" "${arguments[@]}" \
  tests/data/tokenizers/{llama3,llama3-small,qwen2,llama2,mistral,gemma} models/demo
