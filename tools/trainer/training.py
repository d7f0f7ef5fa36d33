"""Training by steps, not by the clock: two processes of one thread each ("ranks") share weights and take batches each.

A step is a function of the weights before it, of SEED and of its number, so that a run that was stopped and resumed, or
slowed down by its neighbours, gives the same weights as one that was not.
"""

import os
import shutil
import time

import torch
import torch.multiprocessing as multiprocessing
from safetensors.torch import load_file

import batches
import model
import tokenizer

SEED = 7
RANKS = 2
BATCHES = 2  # of a rank and step: RANKS * BATCHES * 2,048 tokens
SHOW = 20  # steps between lines of the log
SCALE = 256  # keeps summed gradients small


class Stream:
    """A rank's batches, with a position that can be stored."""

    def __init__(self, rank, folder, shares, position=None):
        self.rank, self.shares, self.tokenizer = rank, shares, tokenizer.load(folder)
        self.position = position or dict(pool=-1, longest=0, taken=0)
        self.batches = self.drawn() if position else []

    def drawn(self):
        return batches.pool(
            f"{SEED} {self.rank} {self.position['pool']}",
            self.shares,
            self.position["longest"],
            self.tokenizer,
            tokenizer.counter(self.tokenizer),
        )

    def next(self, longest):
        if self.position["taken"] == len(self.batches):
            self.position = dict(pool=self.position["pool"] + 1, longest=longest, taken=0)
            self.batches = self.drawn()
        self.position["taken"] += 1
        return self.batches[self.position["taken"] - 1]


class Shared:
    """What the ranks share: fp32 weights and their average; each rank's gradients, sum of losses, count of targets."""

    def __init__(self):
        n = model.first_weights(SEED).numel()
        self.weights, self.average = torch.zeros(n).share_memory_(), torch.zeros(n).share_memory_()
        self.gradients = torch.zeros(RANKS, n).share_memory_()
        self.losses = torch.zeros(RANKS, 2, dtype=torch.float64).share_memory_()


class Updates:
    """The optimizers of the weights that a rank updates: Muon for matrices, AdamW for embeddings and norms."""

    def __init__(self, rank, shared):
        self.weights = model.weights_of(shared.weights)
        self.averages = model.weights_of(shared.average)
        self.gradients = [model.weights_of(g) for g in shared.gradients]
        load, self.mine = [0] * RANKS, []
        for name in sorted(self.weights, key=lambda n: -self.weights[n].numel()):
            lightest = load.index(min(load))
            load[lightest] += self.weights[name].numel() if self.is_matrix(name) else 1
            if lightest == rank:
                self.mine.append(name)
        self.leaves = {name: torch.nn.Parameter(self.weights[name]) for name in self.mine}
        matrices = [self.leaves[n] for n in self.mine if self.is_matrix(n)]
        others = [self.leaves[n] for n in self.mine if not self.is_matrix(n)]
        self.optimizers = [
            torch.optim.Muon(matrices, lr=1, weight_decay=0.05, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=1, betas=(0.9, 0.98), weight_decay=0.0, fused=True),
        ]

    def is_matrix(self, name):
        return self.weights[name].ndim == 2 and "embed" not in name

    def update(self, factor, rate, average):
        """factor: from the summed gradients to those of the mean loss; average: what the weights add to theirs."""
        for name, leaf in self.leaves.items():
            leaf.grad = sum(g[name] for g in self.gradients) * factor
            if not self.is_matrix(name):
                leaf.grad /= max(1.0, float(leaf.grad.norm()))
        for optimizer in self.optimizers:
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
        for name in self.mine:
            self.averages[name].lerp_(self.weights[name], average)


def checkpoint_path(folder, rank, step):
    return folder / f"rank{rank}-{step:06d}.pt"


def last_checkpoint(folder):
    """The last step that all ranks have stored; 0: none."""
    stored = [{int(p.stem.split("-")[1]) for p in folder.glob(f"rank{rank}-*.pt")} for rank in range(RANKS)]
    return max(set.intersection(*stored), default=0)


class Log:
    """Prints the mean loss and the speed since the last line."""

    def __init__(self):
        self.since, self.tokens, self.loss, self.targets = time.monotonic(), 0, 0.0, 0.0

    def add(self, tokens, losses):
        self.tokens += tokens
        self.loss, self.targets = self.loss + float(losses[:, 0].sum()), self.targets + float(losses[:, 1].sum())

    def show(self, step, recipe):
        seconds = time.monotonic() - self.since
        print(
            f"step {step} of {recipe.steps} loss {self.loss / self.targets:.4f} rate {recipe.rate_at(step):.6f} "
            f"texts to {recipe.longest_at(step - 1)} {self.tokens / seconds:.0f} tokens/s",
            flush=True,
        )
        self.__init__()


class Rank:
    """One of the processes: its batches, its half of the updates, and what a checkpoint holds of both."""

    def __init__(self, rank, work, recipe, shared):
        self.rank, self.recipe, self.shared = rank, recipe, shared
        self.state, self.hf, self.step = work / "state", work / "hf", last_checkpoint(work / "state")
        self.counts = torch.zeros(2, dtype=torch.int64)  # tokens, targets
        self.updates = Updates(rank, shared)
        self.stream = Stream(rank, self.hf, recipe.shares)
        self.low = torch.empty(shared.weights.shape, dtype=torch.bfloat16)
        self.leaves = [w.requires_grad_() for w in model.fused_weights(self.low)]
        self.sums = model.fused_weights(shared.gradients[rank])
        self.rope = [t.bfloat16() for t in model.rope_table(batches.MAX_ROW + 16)]

    def begin(self, is_continued):
        """Rank 0 sets the shared weights: those of the checkpoint, of the model to continue, or fresh ones."""
        state = torch.load(checkpoint_path(self.state, self.rank, self.step)) if self.step else {}
        if state:
            self.counts, self.stream = state["counts"], Stream(self.rank, self.hf, self.recipe.shares, state["stream"])
            for optimizer, stored in zip(self.updates.optimizers, state["optimizers"]):
                optimizer.load_state_dict(stored)
        if self.rank == 0:
            weights = state.get("weights")
            if not state and is_continued:
                weights = model.flat_of(load_file(self.hf / "model.safetensors"))
            elif not state:
                weights = model.first_weights(SEED)
            self.shared.weights.copy_(weights)
            self.shared.average.copy_(state.get("average", weights))

    def add_gradients(self):
        """Computes the summed gradients and losses of this step's batches; returns the count of their tokens."""
        with torch.no_grad():
            self.low.copy_(self.shared.weights)
        self.shared.gradients[self.rank].zero_()
        total, tokens, targets = 0.0, 0, 0
        for _ in range(BATCHES):
            ids, where, target = self.stream.next(self.recipe.longest_at(self.step))
            loss = model.loss(self.leaves, ids, *self.rope, where, target)
            (loss / SCALE).backward()
            for leaf, sum_ in zip(self.leaves, self.sums):
                sum_ += leaf.grad
                leaf.grad = None
            total, tokens, targets = total + loss.item(), tokens + ids.numel(), targets + len(where)
        self.shared.losses[self.rank] = torch.tensor([total, targets])
        self.counts += torch.tensor([tokens, targets])
        return tokens

    def update(self):
        factor = SCALE / float(self.shared.losses[:, 1].sum())
        average = max(self.recipe.average, 1 / (1 + self.step / 10))  # the first steps are soon forgotten
        self.updates.update(factor, self.recipe.rate_at(self.step), average)
        self.step += 1

    def save(self):
        state = dict(counts=self.counts, stream=self.stream.position)
        state["optimizers"] = [optimizer.state_dict() for optimizer in self.updates.optimizers]
        if self.rank == 0:
            state |= dict(weights=self.shared.weights, average=self.shared.average)
        path = checkpoint_path(self.state, self.rank, self.step)
        torch.save(state, path.with_suffix(".part"))
        os.replace(path.with_suffix(".part"), path)
        for old in sorted(self.state.glob(f"rank{self.rank}-*.pt"))[:-2]:
            old.unlink()


def run_rank(number, work, recipe, is_continued, shared, barrier):
    torch.set_num_threads(1)
    rank, log = Rank(number, work, recipe, shared), Log()
    rank.begin(is_continued)
    barrier.wait()
    while rank.step < recipe.steps:
        tokens = rank.add_gradients()
        barrier.wait()
        rank.update()
        if number == 0:
            log.add(RANKS * tokens, shared.losses)
            if rank.step % SHOW == 0:
                log.show(rank.step, recipe)
        barrier.wait()
        if rank.step % recipe.save == 0 or rank.step == recipe.steps:
            rank.save()
            barrier.wait()


def train(work, recipe, start):
    """Trains from the last checkpoint of work/state, else from the model in the folder `start`, else from nothing."""
    (work / "state").mkdir(parents=True, exist_ok=True)
    if start and not last_checkpoint(work / "state"):
        (work / "hf").mkdir(exist_ok=True)
        for name in ("tokenizer.json", "tokenizer_config.json", "model.safetensors"):
            shutil.copy(start / name, work / "hf")
    shared, barrier = Shared(), multiprocessing.get_context("spawn").Barrier(RANKS)
    print("parameters", shared.weights.numel(), "from step", last_checkpoint(work / "state"), flush=True)
    multiprocessing.spawn(run_rank, args=(work, recipe, bool(start), shared, barrier), nprocs=RANKS)
