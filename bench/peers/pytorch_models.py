"""GPT-2, OPT and LLaMA in PyTorch as an expert would write them for speed: packed projections and
scaled_dot_product_attention."""

import torch
import torch.nn.functional as F
from torch import nn

# Those of filigree's presets of the same names; with "relu" OPT, with "kv_heads" LLaMA.
CASES = {
    "quickstart": dict(layers=4, width=256, heads=4, context=256, vocab=2048),
    "nano-25m": dict(layers=8, width=512, heads=8, context=512, vocab=2048),
    "gpt2-124m": dict(layers=12, width=768, heads=12, context=1024, vocab=50257),
    "gpt2-355m": dict(layers=24, width=1024, heads=16, context=1024, vocab=50257),
    "gpt2-1.5b": dict(layers=48, width=1600, heads=25, context=1024, vocab=50257),
    "opt-2.7b": dict(layers=32, width=2560, heads=32, context=2048, vocab=50272, relu=True),
    "opt-6.7b": dict(layers=32, width=4096, heads=32, context=2048, vocab=50272, relu=True),
    "opt-13b": dict(layers=40, width=5120, heads=40, context=2048, vocab=50272, relu=True),
    "llama-3-8b": dict(layers=32, width=4096, heads=32, context=8192, vocab=128256, kv_heads=8, ffn=14336,
                       rope_base=500000.0),
}


class Block(nn.Module):
    def __init__(self, width, heads, relu):
        super().__init__()
        self.heads, self.relu = heads, relu
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):  # (B, S, C)
        B, S, C = x.shape
        qkv = self.qkv(self.norm1(x)).view(B, S, 3, self.heads, C // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, S, D)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(B, S, C))
        up = self.up(self.norm2(x))
        return x + self.down(F.relu(up) if self.relu else F.gelu(up, approximate="tanh"))


def initialize(model):
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)


def loss_of(logits, targets):
    """logits (B, S, V), targets (B, S) to the mean loss, taken in fp32."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Gpt2(nn.Module):
    """GPT-2, and with `relu` OPT: learned positions, biases, the head tied to the embedding."""

    def __init__(self, layers, width, heads, context, vocab, relu=False):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads, relu) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        initialize(self)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return loss_of(F.linear(self.norm(x), self.tokens.weight), targets)


def rotate(x, cosines, sines):
    """x (B, H, S, D) turned by position, in fp32; cosines, sines (S, D / 2)."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cosines - b * sines, b * cosines + a * sines), dim=-1).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.norm1 = nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width, eps=1e-5)
        self.up = nn.Linear(width, 2 * ffn, bias=False)  # gate, then up
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, cosines, sines):  # (B, S, C)
        B, S, C = x.shape
        qkv = self.qkv(self.norm1(x)).view(B, S, -1, self.size).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)  # each (B, its heads, S, D)
        attended = F.scaled_dot_product_attention(rotate(q, cosines, sines), rotate(k, cosines, sines), v, is_causal=True,
                                                  enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(attended.transpose(1, 2).reshape(B, S, C))
        gate, up = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    """LLaMA: rotary positions, grouped keys and values, SwiGLU, no biases, a head of its own."""

    def __init__(self, layers, width, heads, context, vocab, kv_heads, ffn, rope_base):
        super().__init__()
        self.size, self.rope_base = width // heads, rope_base
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList([LlamaBlock(width, heads, kv_heads, ffn) for _ in range(layers)])
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocab, bias=False)
        initialize(self)

    def forward(self, tokens, targets):
        S = tokens.shape[1]
        powers = torch.arange(0, self.size, 2, device=tokens.device, dtype=torch.float32) / self.size
        angles = torch.arange(S, device=tokens.device, dtype=torch.float32)[:, None] * self.rope_base**-powers  # (S, D / 2)
        cosines, sines = angles.cos(), angles.sin()
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, cosines, sines)
        return loss_of(self.head(self.norm(x)), targets)


def make_model(shape):
    return Llama(**shape) if "kv_heads" in shape else Gpt2(**shape)
