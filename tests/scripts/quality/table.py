"""Tiny experiments for quality_test.sh: grids, what follows from them, a run that fails, one without an end."""

from experiment import BestRate, Case, Experiment, rate_grid

TINY = Case("tiny", "tiny.toml")
SCALES = {"shorter": {"train.steps": "2"}}


def experiments(ratios):
    slope = {"weights.method": "slope"}
    return (rate_grid("1 rates", TINY, "dense", ("1e-3", "4e-2"))
            + rate_grid("1 rates", TINY, "slope", ("1e-3", "inf"), slope)  # the second is refused: it has lost
            + [
                Experiment("2 seeds", TINY, "slope", slope, (1, 2), BestRate(TINY, "slope")),
                Experiment("2 seeds", TINY, "dense", {}, (1, 2), BestRate(TINY, "dense"), baseline=""),
                Experiment("2 seeds", TINY, "dense-longer", {}, (1,), BestRate(TINY, "dense", 0.5),
                           steps=ratios.get("dense", 2.0)),
                Experiment("3 endless", TINY, "endless", {}, rate="1e-3", steps=250000.0),
            ])
