"""Tiny models of the transformers library in which every array matters: no gain is 1, no bias 0."""

import torch
import transformers

CONTEXT = 24


IDS = {"bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager"}


def gpt2(vocab, **more):
    shape = {"n_positions": CONTEXT, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 64}
    return transformers.GPT2Config(vocab_size=vocab, **{**IDS, **shape, **more})


def opt(vocab, **more):
    shape = {"hidden_size": 32, "word_embed_proj_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
             "ffn_dim": 64, "max_position_embeddings": CONTEXT, "pad_token_id": None}
    return transformers.OPTConfig(vocab_size=vocab, **{**IDS, **shape, **more})


LLAMA = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5}


def llama2(vocab, **more):
    return transformers.LlamaConfig(vocab_size=vocab, **{**IDS, **LLAMA, "num_key_value_heads": 4, **more})


def llama3(vocab, **more):
    rotary = {"rope_type": "default", "rope_theta": 500000.0}
    return transformers.LlamaConfig(vocab_size=vocab, **{**IDS, **LLAMA, "rope_parameters": rotary, **more})


def mistral(vocab, **more):
    return transformers.MistralConfig(vocab_size=vocab, **{**IDS, **LLAMA, "sliding_window": CONTEXT, **more})


def make(config, seed):
    """A model of this configuration with random values everywhere."""
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.1 if parameter.dim() == 1 else 0.2
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
            if "norm" in name and name.endswith("weight") or ".ln_" in name and name.endswith("weight"):
                parameter.add_(1.0)
    return model


def make_tokens(vocab, seed, sequences=3, positions=CONTEXT):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, (sequences, positions), generator=generator)


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens).logits.float()
