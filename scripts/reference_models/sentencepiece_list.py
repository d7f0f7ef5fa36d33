"""A small SentencePiece BPE vocabulary, as a GGUF file has it, and what SentencePiece makes of strings.

Writes vocabulary.json.gz (tokens, scores, types as in tokenizer.ggml.*) and encode.jsonl.gz (text, ids) into the folder
--out. It is trained on, and encodes, the strings of tests/data/tokenizers/llama2.

    pip install sentencepiece==0.2.3
    python sentencepiece_list.py --out ../../tests/data/tokenizers/sentencepiece
"""
import argparse
import gzip
import io
import json
from pathlib import Path

import sentencepiece

STRINGS = Path(__file__).resolve().parents[2] / "tests/data/tokenizers/llama2/encode.jsonl.gz"


def type_of(model, i):
    kinds = [(model.is_unknown, 2), (model.is_control, 3), (model.is_unused, 5), (model.is_byte, 6)]
    return next((value for is_kind, value in kinds if is_kind(i)), 1)


def write(path, text):
    with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as file:
        file.write(text.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    texts = [json.loads(line)["text"] for line in gzip.open(STRINGS, "rt").read().split("\n") if line]
    # Special tokens and the space character have other meanings in other programs.
    texts = [t for t in texts if t and "<" not in t and "\u2581" not in t and "\0" not in t]
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([t for t in texts if "\n" not in t]), model_writer=trained, model_type="bpe",
        vocab_size=1200, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, character_coverage=0.99, num_threads=1, minloglevel=2)
    model = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    ids = range(model.get_piece_size())
    out.mkdir(parents=True, exist_ok=True)
    write(out / "vocabulary.json.gz", json.dumps({
        "tokens": [model.id_to_piece(i) for i in ids], "scores": [model.get_score(i) for i in ids],
        "types": [type_of(model, i) for i in ids]}, ensure_ascii=False))
    rows = [{"text": t, "ids": model.encode(t)} for t in texts[:800]]
    write(out / "encode.jsonl.gz", "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows))


if __name__ == "__main__":
    main()
