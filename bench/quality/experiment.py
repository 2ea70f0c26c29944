"""What a table of experiments consists of; see experiments.py for one."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and its tokens: runs of one case are compared with each other."""

    name: str
    config: str  # a configuration beside the table; it gives the model's shape as numbers


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One row of a table: a configuration with some keys changed, run once a seed."""

    group: str  # groups run in the order of the table
    case: Case
    method: str  # the row's name
    settings: dict = dataclasses.field(default_factory=dict)  # configuration key: value, as after --set
    seeds: tuple = (1,)
    # The learning rate: a text such as "3e-3", or BestRate: it is known when that grid is done.
    rate: object = None
    steps: float = 1.0  # share of the configuration's steps
    baseline: str = "dense"  # the method of the same case and seed that it stands beside
    grid: str = ""  # the grid that this run belongs to


@dataclasses.dataclass(frozen=True)
class BestRate:
    """The rate with the lowest validation loss of `grid` in `case`, times `factor`."""

    case: Case
    grid: str
    factor: float = 1.0


def rate_grid(group, case, method, rates, settings=None):
    """One run, of seed 1, for each rate; BestRate(case, method) is the best of them."""
    return [Experiment(group, case, f"{method}-lr{rate}", settings or {}, rate=rate, grid=method) for rate in rates]


def rate_text(value):
    """0.0015 as 1.5e-3: the way in which rates are written here."""
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"
