#!/usr/bin/env python3
"""Reads a run's event file with TensorBoard's own reader and compares it with the run's JSON lines.

    check.py RUN

Needs the package tensorboard.
"""
import json
import math
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def lines(path):
    return [json.loads(line) for line in open(path, encoding="utf-8")]


def float32(value):
    return math.nan if value is None else struct.unpack("f", struct.pack("f", value))[0]


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def main():
    run = pathlib.Path(sys.argv[1])
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
    events.Reload()
    tags = events.Tags()
    compared = 0

    def compare(tag, expected):
        nonlocal compared
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        if len(found) != len(expected) or not all(a[0] == b[0] and same(a[1], b[1]) for a, b in zip(found, expected)):
            sys.exit(f"{tag}: {found[:5]} ... differs from {expected[:5]} ...")
        compared += len(found)

    steps = lines(run / "metrics.jsonl")
    for tag, key in (("train/loss", "loss"), ("train/lr", "lr"), ("train/grad_norm", "grad_norm"),
                     ("speed/step_ms", "step_ms"), ("speed/tokens_per_s", "tokens_per_s")):
        compare(tag, [(line["step"], float32(line[key])) for line in steps])
    rows = {}
    for line in lines(run / "eval.jsonl"):
        for key, value in line.items():
            if key not in ("step", "task"):
                rows.setdefault(f"{line['task']}/{key}", []).append((line["step"], float32(value)))
    for tag, expected in rows.items():
        compare(tag, expected)

    samples = [line["text"] for line in lines(run / "samples.jsonl")] if (run / "samples.jsonl").exists() else []
    for number, text in enumerate(samples, 1):
        tensor = events.Tensors(f"samples/{number}/text_summary" if f"samples/{number}/text_summary" in tags["tensors"]
                                else f"samples/{number}")[-1].tensor_proto
        shown = tensor.string_val[0]
        if shown.replace(b"\n    ", b"\n")[4:] != text.encode() and "\ufffd" not in text:
            sys.exit(f"samples/{number}: {shown!r} differs from {text!r}")
    if not tags["histograms"]:
        sys.exit("no histograms")
    for tag in tags["histograms"]:
        for event in events.Histograms(tag):
            value = event.histogram_value
            if sum(value.bucket) != value.num or not value.min <= value.sum / value.num <= value.max:
                sys.exit(f"{tag}: its buckets do not hold {value.num} values")
    print(f"{compared} scalars, {len(samples)} texts and {len(tags['histograms'])} histograms are read as they were written")


if __name__ == "__main__":
    main()
