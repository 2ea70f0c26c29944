"""The quality experiments: every method at its own learning rate, beside the dense model and its honest rivals.

Groups are ordered by importance, so that the results of a part of them are of use. Names of methods: "block-16" is
weights.method "block" with 16x16 blocks of density 1/2; what follows a further hyphen is what differs.
"""

from experiment import BestRate, Case, Experiment, rate_grid

NANO = Case("nano-25m-88M-tokens", "nano-25m.toml")
GPT2 = Case("gpt2-124m-vocab8192-88M-tokens", "gpt2-124m.toml")

# Of every method its own best rate: a grid that ends at the best is too short.
RATES = ("1.5e-3", "3e-3", "6e-3")
SEEDS = (1, 2, 3)

# --scale tiny: every experiment in a second or two on a processor, to see that it runs.
SCALES = {
    "tiny": {
        "model.width": "128", "model.heads": "2", "model.context": "32", "train.batch_tokens": "64",
        "train.micro_batch": "2", "train.steps": "8", "train.warmup": "2", "eval.tokens": "256",
    }
}

SLOPE = {"weights.method": "slope"}
HALF_DEPTH = {"model.layers": "4"}
HALF_WIDTH = {"model.width": "256", "model.heads": "4"}


def block(size, **more):
    settings = {"weights.method": "block", "weights.block": f"{size}x{size}"}
    return settings | {"weights." + key: value for key, value in more.items()}


def overrides(*entries):
    """[[weights.override]] of (layers, pattern) pairs."""
    return {"weights.override": "[" + ", ".join(f'{{layers="{layers}", pattern="{pattern}"}}'
                                                for layers, pattern in entries) + "]"}


def adapters(rank, start, **more):
    settings = {"adapters.rank": str(rank), "adapters.start": str(start)}
    return settings | {"adapters." + key: value for key, value in more.items()}


def best(grid):
    return BestRate(NANO, grid)


def experiments(ratios):
    """The table. `ratios`: method -> how many times as many steps it takes in the dense model's time."""
    return (rates() + seeds({"slope": 1.25} | ratios) + blocks() + changes() + larger_model()
            + half_width())


def rates():
    group = "1 learning rates"
    table = []
    for method, settings in (("dense", {}), ("slope", SLOPE), ("block-16", block(16)), ("block-128", block(128)),
                             ("dense-half-depth", HALF_DEPTH)):
        table += rate_grid(group, NANO, method, RATES, settings)
    return table


def seeds(ratios):
    group = "2 three seeds"
    table = [
        Experiment(group, NANO, "dense", {}, SEEDS, best("dense"), baseline=""),
        Experiment(group, NANO, "slope", SLOPE, SEEDS, best("slope")),
        Experiment(group, NANO, "block-16", block(16), SEEDS, best("block-16")),
        Experiment(group, NANO, "block-128", block(128), SEEDS, best("block-128")),
        Experiment(group, NANO, "dense-half-depth", HALF_DEPTH, SEEDS, best("dense-half-depth")),
        Experiment(group, NANO, "dense-steps0.8", {}, SEEDS, best("dense"), steps=0.8),
    ]
    kinds = {"slope": SLOPE, "block-16": block(16), "block-128": block(128)}
    for method, ratio in ratios.items():
        if method not in kinds:
            raise ValueError(f"--ratio {method}: expected one of {', '.join(kinds)}")
        table.append(Experiment(group, NANO, f"{method}-steps{ratio:g}", kinds[method], SEEDS, best(method), ratio))
    return table


def half_width():
    """A quarter of the weights in linear layers: smaller than any of the sparse models."""
    group = "6 half width"
    return (rate_grid(group, NANO, "dense-half-width", RATES, HALF_WIDTH)
            + [Experiment(group, NANO, "dense-half-width", HALF_WIDTH, SEEDS, best("dense-half-width"))])


def blocks():
    """Sizes and densities; a size without a grid of its own takes the rate of the nearest one that has one."""
    group = "3 blocks"
    rate = {16: "block-16", 32: "block-16", 64: "block-128", 128: "block-128"}
    table = [Experiment(group, NANO, f"block-{size}", block(size), SEEDS, best(rate[size])) for size in (64, 32)]
    table += [Experiment(group, NANO, f"block-{size}-density0.25", block(size, density="0.25"), SEEDS,
                         best(rate[size])) for size in (128, 16, 64, 32)]
    table += [Experiment(group, NANO, f"block-{size}-random", block(size, mask="random"), SEEDS, best(rate[size]))
              for size in (128, 16)]
    return table


def changes():
    """One change at a time, one seed, at the rate of the method that is changed."""
    group = "4 one change each"
    table = []

    def add(method, settings):
        of = "slope" if method.startswith("slope") else "-".join(method.split("-")[:2])
        table.append(Experiment(group, NANO, method, settings, rate=best(of), baseline=of))

    add("slope-mask-magnitude", SLOPE | {"weights.mask": "magnitude"})
    add("slope-magnitude-after-25%-dense", SLOPE | {"weights.mask": "magnitude", "weights.start": "0.25"})
    add("slope-init-unscaled", SLOPE | {"weights.init_scale": "none"})
    # The second pruning of a random 2:4 mask leaves 0.40625 of the weights out of 0.5: their ratio.
    add("slope-dx-rescaled", SLOPE | {"weights.dx_rescale": "1.231"})
    add("slope-column-mask-fixed", SLOPE | {"weights.column_mask": "fixed"})
    # Ranks of 6.25, 1.56 and 0.39 % of the width, and as many weights more from the start: 3:4 instead of 2:4 in layers
    # that make up 1/3, 1/12 and 1/48 of all. Without re-warming adapters learn at the hundredth of the peak that the
    # published linear schedule has left at 99 %.
    more = [(f"blocks.{i}.mlp.*", "3:4") for i in (1, 3, 5, 7)]
    add("slope-rank32-from-99%", SLOPE | adapters(32, 0.99))
    add("slope-rank32-from-90%", SLOPE | adapters(32, 0.9))
    add("slope-rank32-from-99%-no-rewarm", SLOPE | adapters(32, 0.99, rewarm="0.01"))
    add("slope-weights-of-rank32", SLOPE | overrides(*more))
    add("slope-rank8-from-99%", SLOPE | adapters(8, 0.99))
    add("slope-rank8-from-90%", SLOPE | adapters(8, 0.9))
    add("slope-weights-of-rank8", SLOPE | overrides(("blocks.3.mlp.*", "3:4")))
    add("slope-rank2-from-99%", SLOPE | adapters(2, 0.99))
    add("slope-rank2-from-90%", SLOPE | adapters(2, 0.9))
    add("slope-weights-of-rank2", SLOPE | overrides(("blocks.2.attention.out", "3:4"),
                                                    ("blocks.5.attention.out", "3:4")))
    add("slope-mlp-only", SLOPE | {"weights.dense_layers": '["blocks.*.attention.*", "head"]'})
    add("slope-2:4-then-2:8", SLOPE | overrides(("blocks.4-7.*", "2:8")))
    add("slope-2:8-then-2:4", SLOPE | overrides(("blocks.0-3.*", "2:8")))
    add("block-16-rank32-from-90%", block(16) | adapters(32, 0.9))
    add("block-128-rank32-from-90%", block(128) | adapters(32, 0.9))
    return table


def larger_model():
    """One seed. Rates: the smaller model's, as the widths' ratio has it."""
    group = "5 larger model"
    kinds = (("dense", {}, "dense"), ("slope", SLOPE, "slope"), ("block-128", block(128), "block-128"),
             ("dense-half-depth", {"model.layers": "6"}, "dense-half-depth"), ("block-64", block(64), "block-128"))
    return [Experiment(group, GPT2, method, settings, rate=BestRate(NANO, grid, 512 / 768),
                       baseline="" if method == "dense" else "dense") for method, settings, grid in kinds]
