"""Training: two processes of one thread each ("ranks") share the weights and take a batch each; by steps, not by the clock.

A step is a function of the weights before it, of SEED and of its number, so that a run that was stopped and resumed, or
slowed down by its neighbours, gives the same weights as one that was not.
"""
import os
import time

import torch
import torch.multiprocessing as multiprocessing

import batches
import model
import tokenizer

SEED = 7
RANKS = 2
BATCHES = 2                                                 # of a rank and step: RANKS * BATCHES * 2,048 tokens
WARMUP, HOLD = 100, .5                                      # steps; share of the steps before the rate falls to zero
MATRIX_RATE, OTHER_RATE = 4e-3, 4e-3
EMA = .01                                                   # what a step adds to the average of the weights
SAVE, SHOW = 100, 20                                        # steps between checkpoints, between lines of the log
SCALE = 256                                                 # keeps summed gradients small
# The longest text with facts, in tokens, up to a share of the steps: short texts first teach to look back.
LENGTHS = [(.08, 110), (.2, 220), (.35, 450), (.55, 900), (.8, 1500), (1, 2050)]


def max_text(progress):
    return next(length for end, length in LENGTHS if progress < end or end == 1)


def rate(step, steps):
    return min(1, (step + 1) / WARMUP) * min(1, max(.01, (1 - step / steps) / (1 - HOLD)))


class Stream:
    """A rank's batches, with a position that can be stored."""

    def __init__(self, rank, folder, position=None):
        self.rank, self.tokenizer = rank, tokenizer.load(folder)
        self.position = position or dict(pool=-1, longest=0, taken=0)
        self.batches = self.drawn() if position else []

    def drawn(self):
        return batches.pool(f"{SEED} {self.rank} {self.position['pool']}", self.position["longest"], self.tokenizer,
                            tokenizer.counter(self.tokenizer))

    def next(self, longest):
        if self.position["taken"] == len(self.batches):
            self.position = dict(pool=self.position["pool"] + 1, longest=longest, taken=0)
            self.batches = self.drawn()
        self.position["taken"] += 1
        return self.batches[self.position["taken"] - 1]


class Shared:
    """What the ranks share: weights and their average in fp32, each rank's gradients, sum of losses and count of targets."""

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
            if lightest == rank: self.mine.append(name)
        self.leaves = {name: torch.nn.Parameter(self.weights[name]) for name in self.mine}
        matrices = [self.leaves[n] for n in self.mine if self.is_matrix(n)]
        others = [self.leaves[n] for n in self.mine if not self.is_matrix(n)]
        self.optimizers = [(torch.optim.Muon(matrices, lr=1, weight_decay=.05, momentum=.95, adjust_lr_fn="match_rms_adamw"), MATRIX_RATE),
                           (torch.optim.AdamW(others, lr=1, betas=(.9, .98), weight_decay=0., fused=True), OTHER_RATE)]

    def is_matrix(self, name):
        return self.weights[name].ndim == 2 and "embed" not in name

    def update(self, factor, step, steps):
        """factor: from the summed gradients to those of the mean loss."""
        for name, leaf in self.leaves.items():
            leaf.grad = sum(g[name] for g in self.gradients) * factor
            if not self.is_matrix(name): leaf.grad /= max(1., float(leaf.grad.norm()))
        for optimizer, peak in self.optimizers:
            optimizer.param_groups[0]["lr"] = peak * rate(step, steps)
            optimizer.step()
        for name in self.mine: self.averages[name].lerp_(self.weights[name], EMA if step > 200 else .1)


def checkpoint_path(folder, rank, step):
    return folder / f"rank{rank}-{step:06d}.pt"


def last_checkpoint(folder):
    """The last step that all ranks have stored; 0: none."""
    stored = [{int(p.stem.split("-")[1]) for p in folder.glob(f"rank{rank}-*.pt")} for rank in range(RANKS)]
    return max(set.intersection(*stored), default=0)


def save(folder, rank, step, state):
    path = checkpoint_path(folder, rank, step)
    torch.save(state, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)
    for old in sorted(folder.glob(f"rank{rank}-*.pt"))[:-2]: old.unlink()


class Log:
    """Prints the mean loss and the speed since the last line."""

    def __init__(self):
        self.since, self.tokens, self.loss, self.targets = time.monotonic(), 0, 0., 0.

    def add(self, tokens, losses):
        self.tokens += tokens
        self.loss, self.targets = self.loss + float(losses[:, 0].sum()), self.targets + float(losses[:, 1].sum())

    def show(self, step, steps, longest):
        seconds = time.monotonic() - self.since
        print(f"step {step} of {steps} loss {self.loss / self.targets:.4f} rate {rate(step, steps):.3f} texts to {longest} "
              f"{self.tokens / seconds:.0f} tokens/s", flush=True)
        self.__init__()


def run_rank(rank, work, steps, shared, barrier):
    torch.set_num_threads(1)
    folder, step, stream, counts = work / "state", last_checkpoint(work / "state"), None, torch.zeros(2, dtype=torch.int64)
    if step == 0 and rank == 0:
        shared.weights.copy_(model.first_weights(SEED))
        shared.average.copy_(shared.weights)
    barrier.wait()
    updates = Updates(rank, shared)
    if step:
        state = torch.load(checkpoint_path(folder, rank, step))
        stream, counts = Stream(rank, work / "hf", state["stream"]), state["counts"]
        for (optimizer, _), stored in zip(updates.optimizers, state["optimizers"]): optimizer.load_state_dict(stored)
        if rank == 0: shared.weights.copy_(state["weights"]), shared.average.copy_(state["average"])
    stream = stream or Stream(rank, work / "hf")
    low = torch.empty(shared.weights.shape, dtype=torch.bfloat16)
    leaves = [w.requires_grad_() for w in model.fused_weights(low)]
    sums = model.fused_weights(shared.gradients[rank])
    table, log = [t.bfloat16() for t in model.rope_table(batches.MAX_ROW + 16)], Log()
    barrier.wait()
    while step < steps:
        longest, targets, total, tokens = max_text(step / steps), 0, 0., 0
        with torch.no_grad(): low.copy_(shared.weights)
        shared.gradients[rank].zero_()
        for _ in range(BATCHES):
            ids, where, target = stream.next(longest)
            loss = model.loss(leaves, ids, *table, where, target)
            (loss / SCALE).backward()
            for leaf, sum_ in zip(leaves, sums):
                sum_ += leaf.grad
                leaf.grad = None
            targets, total, tokens = targets + len(where), total + loss.item(), tokens + ids.numel()
        shared.losses[rank] = torch.tensor([total, targets])
        barrier.wait()
        updates.update(SCALE / float(shared.losses[:, 1].sum()), step, steps)
        step, counts = step + 1, counts + torch.tensor([tokens, targets])
        if rank == 0:
            log.add(RANKS * tokens, shared.losses)
            if step % SHOW == 0: log.show(step, steps, longest)
        barrier.wait()
        if step % SAVE == 0 or step == steps:
            state = dict(stream=stream.position, counts=counts, optimizers=[optimizer.state_dict() for optimizer, _ in updates.optimizers])
            if rank == 0: state |= dict(weights=shared.weights, average=shared.average)
            save(folder, rank, step, state)
            barrier.wait()


def train(work, steps):
    """Trains up to `steps`, from the last checkpoint of work/state if there is one."""
    (work / "state").mkdir(parents=True, exist_ok=True)
    shared, barrier = Shared(), multiprocessing.get_context("spawn").Barrier(RANKS)
    print("parameters", shared.weights.numel(), "from step", last_checkpoint(work / "state"), flush=True)
    multiprocessing.spawn(run_rank, args=(work, steps, shared, barrier), nprocs=RANKS)
