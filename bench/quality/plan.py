"""Which runs a table of experiments asks for, and what each of them is."""

import dataclasses
import hashlib
import math
import pathlib
import re
import shlex
import tomllib

from experiment import BestRate, rate_text


class UsageError(Exception):
    """A mistake in the table or on the command line."""


@dataclasses.dataclass(frozen=True)
class Run:
    """An experiment with one seed and its learning rate."""

    experiment: object
    case: str
    seed: int
    config: pathlib.Path
    settings: dict  # configuration key: value, but for the data's place
    command: str  # what results call it: the same wherever it runs
    row_config: dict  # "config" of its rows
    steps: int
    tokens: int
    flops: float  # of the dense model

    @property
    def name(self):
        return f"{self.case} {self.experiment.method} seed {self.seed}"

    @property
    def folder_name(self):
        """Differs whenever the command does."""
        text = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.case}-{self.experiment.method}-seed{self.seed}")
        return f"{text}-{hashlib.sha256(self.command.encode()).hexdigest()[:8]}"


class Plan:
    """`entries` are (experiment, seed) pairs: group after group, and in each all methods with their first seed before
    any with its second."""

    def __init__(self, experiments, folder, root, vocab, scale_name="", scale=None):
        self.experiments = experiments
        self.folder = folder  # of the table and its configurations
        self.root = root  # commands name configurations from here
        self.vocab = vocab
        self.scale_name = scale_name
        self.scale = scale or {}
        self._tables = {}
        self.entries = []
        for group in dict.fromkeys(e.group for e in experiments):
            members = [e for e in experiments if e.group == group]
            for turn in range(max(len(e.seeds) for e in members)):
                self.entries += [(e, e.seeds[turn]) for e in members if turn < len(e.seeds)]

    def case_name(self, case):
        return case.name + (f"-{self.scale_name}" if self.scale_name else "")

    def run(self, experiment, seed, rate):
        """The run of `experiment` with `seed` at learning rate `rate`, a text; None: the configuration's."""
        config = self.folder / experiment.case.config
        base = self._table(config) | self.scale
        here = base | experiment.settings
        settings = dict(self.scale)
        if rate is not None:
            settings["train.lr"] = rate
        steps = round(int(base["train.steps"]) * experiment.steps)
        if experiment.steps != 1.0:
            settings["train.steps"] = str(steps)
        settings |= experiment.settings | {"run.seed": str(seed)}
        words = ["filigree", "train", self._shown(config)]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]

        layers, width, context = (int(here[f"model.{key}"]) for key in ("layers", "width", "context"))
        vocab = int(here.get("model.vocab", 0)) or self.vocab
        batch_tokens = int(here["train.batch_tokens"])
        # Forward and backward: 6 a weight and token, with the tied embedding as the head, and causal attention.
        flops_per_token = 6.0 * (12 * layers * width**2 + vocab * width) + 6.0 * layers * width * context
        row_config = {
            "batch": int(base["train.batch_tokens"]) // int(base["model.context"]),
            "sequence": int(base["model.context"]),
            "layers": int(base["model.layers"]),
            "precision": base.get("run.precision", "fp32"),
            "ranks": 1,
            "seed": seed,
        }
        return Run(experiment, self.case_name(experiment.case), seed, config, settings, shlex.join(words), row_config,
                   steps, steps * batch_tokens, steps * batch_tokens * flops_per_token)

    def resolve(self, experiment, seed, results, failed):
        """The run, or a text that says what it waits for."""
        if not isinstance(experiment.rate, BestRate):
            return self.run(experiment, seed, experiment.rate)
        choice = self.best_rate(experiment.rate, results, failed)
        if isinstance(choice, str):
            return choice
        return self.run(experiment, seed, rate_text(choice[0] * experiment.rate.factor))

    def grid_runs(self, case, grid):
        return [(float(e.rate), self.run(e, seed, e.rate)) for e in self.experiments for seed in e.seeds
                if e.grid == grid and e.case == case]

    def best_rate(self, best, results, failed):
        """(rate, whether it is at the grid's edge), or a text that says what is missing. A run that failed has lost."""
        grid = self.grid_runs(best.case, best.grid)
        if not grid:
            raise UsageError(f"the table has no grid '{best.grid}' in {best.case.name}")
        losses = {}
        for rate, run in grid:
            loss = results.loss(run)
            if loss is None and run.command not in failed:
                return f"the rates of {best.grid}"
            losses[rate] = math.inf if loss is None else loss
        rate = min(losses, key=losses.get)
        if math.isinf(losses[rate]):
            return f"a rate of {best.grid} with which it does not fail"
        return rate, len(losses) > 1 and rate in (min(losses), max(losses))

    def _table(self, config):
        """The configuration's keys as "section.key"."""
        if config not in self._tables:
            try:
                sections = tomllib.loads(config.read_text())
            except (OSError, tomllib.TOMLDecodeError) as error:
                raise UsageError(f"{config}: {error}") from error
            flat = {f"{section}.{key}": value for section, keys in sections.items() if isinstance(keys, dict)
                    for key, value in keys.items()}
            for key in ("model.layers", "model.width", "model.context", "train.steps", "train.batch_tokens"):
                if key not in flat:
                    raise UsageError(f"{config}: {key} is missing; the harness needs it, also beside a preset")
            self._tables[config] = flat
        return self._tables[config]

    def _shown(self, config):
        try:
            return str(config.relative_to(self.root))
        except ValueError:
            return config.name
