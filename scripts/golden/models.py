"""The three architectures as filigree defines them, in plain PyTorch: the independent half of the golden values.

Parameters are a dict of tensors with filigree's names and layouts (docs/formats.md); a model is a function of that dict
and of token ids. Letters: B sequences, S positions, C width, H query heads, G key/value heads, D head size, F hidden
width of the MLP, V vocabulary, P context.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Model:
    arch: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int
    norm_epsilon: float = 1e-5
    rope_base: float = 10000.0

    @property
    def head_size(self):
        return self.width // self.heads

    @property
    def tied(self):
        return self.arch != "llama"


def initial_parameters(model, seed):
    """Weights large enough that every part of the model, each bias and gain included, shows in the loss."""
    generator = torch.Generator().manual_seed(seed)
    C, D = model.width, model.head_size
    biased = model.arch != "llama"
    parameters = {}

    def normal(name, *shape, deviation, mean=0.0):
        parameters[name] = mean + deviation * torch.randn(*shape, generator=generator)

    def linear(name, outputs, inputs):
        normal(f"{name}.weight", outputs, inputs, deviation=inputs**-0.5)
        if biased:
            normal(f"{name}.bias", outputs, deviation=0.1)

    def norm(name):
        normal(f"{name}.gain", C, deviation=0.1, mean=1.0)
        if biased:
            normal(f"{name}.bias", C, deviation=0.1)

    normal("embedding.tokens", model.vocab, C, deviation=0.2)
    if biased:
        normal("embedding.positions", model.context, C, deviation=0.2)
    for i in range(model.layers):
        norm(f"blocks.{i}.norm1")
        linear(f"blocks.{i}.attention.qkv", (model.heads + 2 * model.kv_heads) * D, C)
        linear(f"blocks.{i}.attention.out", C, C)
        norm(f"blocks.{i}.norm2")
        linear(f"blocks.{i}.mlp.up", (2 if model.arch == "llama" else 1) * model.ffn, C)
        linear(f"blocks.{i}.mlp.down", C, model.ffn)
    norm("norm")
    if not model.tied:
        normal("head.weight", model.vocab, C, deviation=C**-0.5)
    return parameters


def normalize(model, parameters, name, x):
    gain = parameters[f"{name}.gain"]  # (C)
    if model.arch == "llama":
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.norm_epsilon) * gain
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + model.norm_epsilon) * gain + parameters[f"{name}.bias"]


def linear(parameters, name, x):
    y = x @ parameters[f"{name}.weight"].T
    return y + parameters[f"{name}.bias"] if f"{name}.bias" in parameters else y


def rotate(model, x):
    """x (B, S, heads, D): entry i < D/2 turns with entry i + D/2 by position · base^(-2i/D)."""
    S, D = x.shape[1], x.shape[3]
    frequencies = model.rope_base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)  # (D/2)
    angles = torch.arange(S, dtype=torch.float64)[:, None] * frequencies                # (S, D/2)
    cosine = angles.cos().float()[:, None, :]                                           # (S, 1, D/2)
    sine = angles.sin().float()[:, None, :]
    low, high = x[..., : D // 2], x[..., D // 2 :]
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1)


def attention(model, parameters, name, x):
    B, S, C = x.shape
    H, G, D = model.heads, model.kv_heads, model.head_size
    qkv = linear(parameters, f"{name}.qkv", x)  # (B, S, (H + 2G)·D)
    q, k, v = qkv.split([H * D, G * D, G * D], dim=-1)
    q, k, v = q.view(B, S, H, D), k.view(B, S, G, D), v.view(B, S, G, D)
    if model.arch == "llama":
        q, k = rotate(model, q), rotate(model, k)
    k, v = (t.repeat_interleave(H // G, dim=2) for t in (k, v))  # query head h reads head h·G/H
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * D**-0.5
    future = torch.ones(S, S, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, float("-inf")).softmax(-1)
    out = torch.einsum("bhij,bjhd->bihd", weights, v).reshape(B, S, C)
    return linear(parameters, f"{name}.out", out)


def mlp(model, parameters, name, x):
    up = linear(parameters, f"{name}.up", x)
    if model.arch == "gpt2":
        hidden = F.gelu(up, approximate="tanh")
    elif model.arch == "opt":
        hidden = F.relu(up)
    else:
        gate, value = up.chunk(2, dim=-1)
        hidden = F.silu(gate) * value
    return linear(parameters, f"{name}.down", hidden)


def logits(model, parameters, tokens):
    """tokens (B, S) to logits (B, S, V)."""
    x = parameters["embedding.tokens"][tokens]
    if model.arch != "llama":
        x = x + parameters["embedding.positions"][: tokens.shape[1]]
    for i in range(model.layers):
        block = f"blocks.{i}"
        x = x + attention(model, parameters, f"{block}.attention", normalize(model, parameters, f"{block}.norm1", x))
        x = x + mlp(model, parameters, f"{block}.mlp", normalize(model, parameters, f"{block}.norm2", x))
    x = normalize(model, parameters, "norm", x)
    return x @ parameters["embedding.tokens" if model.tied else "head.weight"].T
