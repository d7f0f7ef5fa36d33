"""What a run learns from, for how long and how fast."""

import dataclasses

from conversations import SHARES


@dataclasses.dataclass(frozen=True)
class Recipe:
    steps: int
    rate: float  # highest learning rate
    warmup: int  # steps
    hold: float  # share of the steps before the rate falls to zero
    average: float  # what a step adds to the average of the weights
    save: int  # steps between checkpoints
    shares: dict  # of the tokens, by kind
    lengths: tuple  # (share of the steps, tokens of the longest text with facts)

    def progress(self, step):
        return step / self.steps

    def rate_at(self, step):
        return (
            self.rate
            * min(1, (step + 1) / self.warmup)
            * min(1, max(0.01, (1 - self.progress(step)) / (1 - self.hold)))
        )

    def longest_at(self, step):
        return next(length for end, length in self.lengths if self.progress(step) < end or end == 1)


# From nothing. Short texts first teach to look back.
WHOLE = Recipe(
    steps=4000,
    rate=4e-3,
    warmup=100,
    hold=0.5,
    average=0.01,
    save=100,
    shares=SHARES,
    lengths=((0.08, 110), (0.2, 220), (0.35, 450), (0.55, 900), (0.8, 1500), (1, 2050)),
)
# Onwards from a trained model: more of what it is least sure of after WHOLE, sums of three digits above all, and enough of
# the rest to keep that.
CONTINUED = Recipe(
    steps=300,
    rate=6e-4,
    warmup=20,
    hold=0.3,
    average=0.02,
    save=100,
    lengths=((1, 2050),),
    shares=SHARES
    | dict(
        tool=0.16,
        tool_plain=0.03,
        fact=0.03,
        unknown=0.04,
        json=0.08,
        sum=0.14,
        long_sum=0.16,
        long_sheet=0.25,
        sheet=0.12,
        unicode=0.05,
    ),
)
