"""The same models through the transformers library's classes: a definition that is not ours."""

import torch
import transformers


def fill(module, tensors):
    """Copies each tensor into the module's parameter of that name; every parameter must be covered."""
    own = dict(module.named_parameters())
    missing = set(own) ^ set(tensors)
    if missing:
        raise SystemExit(f"{type(module).__name__}: parameters without a counterpart: {sorted(missing)}")
    for name, value in tensors.items():
        own[name].data.copy_(value)


def norm(tensors, parameters, theirs, ours):
    tensors[f"{theirs}.weight"] = parameters[f"{ours}.gain"]
    if f"{ours}.bias" in parameters:
        tensors[f"{theirs}.bias"] = parameters[f"{ours}.bias"]


def gpt2(model, parameters):
    config = transformers.GPT2Config(
        vocab_size=model.vocab, n_positions=model.context, n_embd=model.width, n_layer=model.layers,
        n_head=model.heads, n_inner=model.ffn, activation_function="gelu_new", layer_norm_epsilon=model.norm_epsilon)
    tensors = {"transformer.wte.weight": parameters["embedding.tokens"],
               "transformer.wpe.weight": parameters["embedding.positions"]}
    names = {"attn.c_attn": "attention.qkv", "attn.c_proj": "attention.out", "mlp.c_fc": "mlp.up",
             "mlp.c_proj": "mlp.down"}
    for i in range(model.layers):
        for theirs, ours in names.items():  # Conv1D stores (inputs, outputs)
            tensors[f"transformer.h.{i}.{theirs}.weight"] = parameters[f"blocks.{i}.{ours}.weight"].T
            tensors[f"transformer.h.{i}.{theirs}.bias"] = parameters[f"blocks.{i}.{ours}.bias"]
        norm(tensors, parameters, f"transformer.h.{i}.ln_1", f"blocks.{i}.norm1")
        norm(tensors, parameters, f"transformer.h.{i}.ln_2", f"blocks.{i}.norm2")
    norm(tensors, parameters, "transformer.ln_f", "norm")
    return transformers.GPT2LMHeadModel(config), tensors


def opt(model, parameters):
    config = transformers.OPTConfig(
        vocab_size=model.vocab, hidden_size=model.width, num_hidden_layers=model.layers, ffn_dim=model.ffn,
        num_attention_heads=model.heads, max_position_embeddings=model.context, word_embed_proj_dim=model.width,
        activation_function="relu", do_layer_norm_before=True)
    positions = torch.cat([torch.zeros(2, model.width), parameters["embedding.positions"]])  # theirs start at row 2
    tensors = {"model.decoder.embed_tokens.weight": parameters["embedding.tokens"],
               "model.decoder.embed_positions.weight": positions}
    for i in range(model.layers):
        layer = f"model.decoder.layers.{i}"
        for kind in ("weight", "bias"):
            q, k, v = parameters[f"blocks.{i}.attention.qkv.{kind}"].chunk(3)
            tensors[f"{layer}.self_attn.q_proj.{kind}"] = q
            tensors[f"{layer}.self_attn.k_proj.{kind}"] = k
            tensors[f"{layer}.self_attn.v_proj.{kind}"] = v
            tensors[f"{layer}.self_attn.out_proj.{kind}"] = parameters[f"blocks.{i}.attention.out.{kind}"]
            tensors[f"{layer}.fc1.{kind}"] = parameters[f"blocks.{i}.mlp.up.{kind}"]
            tensors[f"{layer}.fc2.{kind}"] = parameters[f"blocks.{i}.mlp.down.{kind}"]
        norm(tensors, parameters, f"{layer}.self_attn_layer_norm", f"blocks.{i}.norm1")
        norm(tensors, parameters, f"{layer}.final_layer_norm", f"blocks.{i}.norm2")
    norm(tensors, parameters, "model.decoder.final_layer_norm", "norm")
    return transformers.OPTForCausalLM(config), tensors


def llama(model, parameters):
    config = transformers.LlamaConfig(
        vocab_size=model.vocab, hidden_size=model.width, intermediate_size=model.ffn, num_hidden_layers=model.layers,
        num_attention_heads=model.heads, num_key_value_heads=model.kv_heads, max_position_embeddings=model.context,
        rms_norm_eps=model.norm_epsilon, rope_theta=model.rope_base, tie_word_embeddings=False)
    H, G, D = model.heads, model.kv_heads, model.head_size
    tensors = {"model.embed_tokens.weight": parameters["embedding.tokens"], "lm_head.weight": parameters["head.weight"]}
    for i in range(model.layers):
        layer = f"model.layers.{i}"
        q, k, v = parameters[f"blocks.{i}.attention.qkv.weight"].split([H * D, G * D, G * D])
        gate, up = parameters[f"blocks.{i}.mlp.up.weight"].chunk(2)
        tensors[f"{layer}.self_attn.q_proj.weight"] = q
        tensors[f"{layer}.self_attn.k_proj.weight"] = k
        tensors[f"{layer}.self_attn.v_proj.weight"] = v
        tensors[f"{layer}.self_attn.o_proj.weight"] = parameters[f"blocks.{i}.attention.out.weight"]
        tensors[f"{layer}.mlp.gate_proj.weight"] = gate
        tensors[f"{layer}.mlp.up_proj.weight"] = up
        tensors[f"{layer}.mlp.down_proj.weight"] = parameters[f"blocks.{i}.mlp.down.weight"]
        norm(tensors, parameters, f"{layer}.input_layernorm", f"blocks.{i}.norm1")
        norm(tensors, parameters, f"{layer}.post_attention_layernorm", f"blocks.{i}.norm2")
    norm(tensors, parameters, "model.norm", "norm")
    return transformers.LlamaForCausalLM(config), tensors


def logits(model, parameters, tokens):
    """tokens (B, S) to logits (B, S, V)."""
    module, tensors = {"gpt2": gpt2, "opt": opt, "llama": llama}[model.arch](model, parameters)
    fill(module, tensors)
    module.eval()
    return module(tokens).logits
