"""GPT-2 in PyTorch as an expert would write it for speed: the packed projection, scaled_dot_product_attention, tied head."""

import torch
import torch.nn.functional as F
from torch import nn

# case: layers, width, heads, context, vocabulary; those of filigree's presets of the same names.
CASES = {
    "quickstart": dict(layers=4, width=256, heads=4, context=256, vocab=2048),
    "gpt2-124m": dict(layers=12, width=768, heads=12, context=1024, vocab=50257),
    "gpt2-355m": dict(layers=24, width=1024, heads=16, context=1024, vocab=50257),
    "gpt2-1.5b": dict(layers=48, width=1600, heads=25, context=1024, vocab=50257),
}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
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
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, context, vocab):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        """tokens, targets (B, S) to the mean loss, taken in fp32."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)  # (B, S, V)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
