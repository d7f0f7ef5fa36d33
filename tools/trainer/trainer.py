"""Makes Baton's demo model from nothing; README.md explains the steps.

trainer.py tokenizer WORK           WORK/hf: the tokenizer and the chat template
trainer.py train WORK [--steps N]   WORK/state: checkpoints, from the last of which it goes on; --from FOLDER: the trained
                                    model in FOLDER onwards, with its tokenizer (CONTINUED in recipe.py)
trainer.py export WORK              WORK/hf: the averaged weights of the last checkpoint in bfloat16; --with FOLDER
                                    --share S: averaged once more, S of them and the rest of the model in FOLDER
trainer.py evaluate WORK [--quick]  WORK/hf: evaluation prompts, results and tables; --quick: a table on the screen
"""

import argparse
import dataclasses
import os
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # ranks are processes of one thread


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["tokenizer", "train", "export", "evaluate"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--from", type=Path, dest="start")
    parser.add_argument("--with", type=Path, dest="other")
    parser.add_argument("--share", type=float, default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.what == "tokenizer":
        import tokenizer

        tokenizer.make(options.work / "hf")
    elif options.what == "train":
        import recipe
        import training

        chosen = recipe.CONTINUED if options.start else recipe.WHOLE
        training.train(options.work, dataclasses.replace(chosen, steps=options.steps or chosen.steps), options.start)
    elif options.what == "export":
        import export

        export.export(options.work, options.other, options.share)
    else:
        import evaluation

        evaluation.evaluate(options.work, options.quick)


if __name__ == "__main__":
    main()
