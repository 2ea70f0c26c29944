// A run's configuration: plain structs with every key's default. Reading, checking and writing TOML is in
// config_toml.h; nothing here knows about files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/block_shape.h"
#include "core/dtype.h"
#include "core/pattern.h"

namespace filigree {

struct RunConfig {
  std::uint64_t seed = 1;
  std::string device = "auto";   // auto | cpu | cuda
  DType precision = DType::f32;  // fp32 | bf16
  bool deterministic = false;    // a fixed rule instead of timing chooses each layer's kernel
  bool require_sparse = false;   // a sparse layer's product that would run dense is an error
  int threads = 0;               // 0: all processors that the process may use

  bool operator==(const RunConfig&) const = default;
};

// The resolved model: a preset fills these, keys beside it override them.
struct ModelConfig {
  std::string preset;         // "" when the shape is given by keys
  std::string arch = "gpt2";  // gpt2 | opt | llama
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // 0: as heads
  std::int64_t ffn = 0;       // 0: 4 x width (gpt2, opt); 8/3 x width rounded up to a multiple of 64 (llama)
  std::int64_t vocab = 0;     // 0: the tokenizer's
  std::int64_t context = 0;
  double norm_epsilon = 1e-5;
  double rope_base = 10000.0;  // llama
  bool tied = true;            // head shares the embedding; default true for gpt2 and opt, false for llama
  std::string init;            // a run or checkpoint to start from

  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::vector<std::string> train;  // shards or text; globs
  std::vector<std::string> val;
  std::string tokenizer;  // "bytes" | "spm:VOCAB" | FILE; "" takes the shards' own

  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  std::int64_t steps = 0;
  std::int64_t batch_tokens = 0;  // tokens an optimizer step; a multiple of micro_batch x context
  std::int64_t micro_batch = 0;   // sequences at once; 0: the whole batch
  double lr = 1e-3;
  std::string schedule = "cosine";  // cosine | linear | constant
  std::int64_t warmup = 0;          // steps
  double min_lr = 0.0;              // the schedule's end, as a fraction of lr
  double weight_decay = 0.1;        // on the matrices of linear layers; never on embeddings, biases, norms
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double clip = 1.0;                  // global gradient norm; 0: off
  std::string recompute = "none";     // none | norm | activation | block
  std::string on_nonfinite = "stop";  // stop | skip

  bool operator==(const TrainConfig&) const = default;
};

// What can differ from layer to layer. A layer's name is e.g. "blocks.3.attention.qkv", "blocks.0.mlp.down", "head".
struct WeightsConfig {
  std::string method = "dense";         // dense | slope | block
  Pattern pattern;                      // slope
  BlockShape block = kAutoBlock;        // block
  double density = 0.5;                 // block
  std::string mask = "auto";            // auto | random | magnitude | balanced | diagonal-band
  std::string column_mask = "dynamic";  // dynamic: chosen anew each step | fixed: at the start
  double start = 0.0;                   // fraction of the steps; before it dense
  double dx_rescale = 1.0;              // factor on dX of sparse layers
  std::string init_scale = "energy";    // energy: 1 / sqrt(kept energy) | none
  std::vector<std::string> dense_layers = {"blocks.0.attention.qkv", "head"};  // names with * wildcards
  struct Override {
    std::string layers;    // a name with * wildcards, or "blocks.A-B.*" for a range of blocks
    std::string method;    // "" keeps
    std::string pattern;   // "" keeps
    std::string block;     // "" keeps
    double density = 0.0;  // 0 keeps

    bool operator==(const Override&) const = default;
  };
  std::vector<Override> overrides;  // [[weights.override]], later ones win

  bool operator==(const WeightsConfig&) const = default;
};

struct AdaptersConfig {
  std::int64_t rank = 0;        // 0: none
  double start = 0.99;          // fraction of the steps at which they are inserted
  std::string init = "normal";  // normal: N(0, 1) with 1/rank as published | scaled: N(0, 1/inputs)
  double rewarm = 0.1;          // learning rate at insertion, as a share of the peak, falling to 0 at the end

  bool operator==(const AdaptersConfig&) const = default;
};

// What travels between ranks, and how.
struct GradientsConfig {
  std::string exchange = "dense";  // dense | radius | topk | randomk | powersgd
  double density = 0.4;            // share of a tensor's entries that is sent: radius, topk, randomk
  double start = 0.2;              // fraction of the steps; before it dense
  DType wire_dtype = DType::f32;   // of gradients on the wire: fp32 | bf16
  bool sparse_rows = true;         // of an untied embedding only the rows that have a gradient, where that is less

  std::int64_t interval = 200;      // radius: steps between two selections
  std::int64_t range = 0;           // radius: entries to each side of a centre that are sent with it
  std::string mode = "improved";    // radius: faithful | improved
  std::string flush = "auto";       // auto | sum | split | spread | frozen_v
  std::string clip = "auto";        // auto | joint | fresh
  std::string score = "direction";  // direction | gradient | momentum
  bool stagger = false;             // tensors flush in turn
  bool frozen = false;              // entries that are not sent do not move
  bool measure = true;              // how much of an update the chosen entries carry, and how long they stay the same

  std::int64_t warmup = 1000;  // topk: steps over which the density falls to its value
  std::int64_t rank = 4;       // powersgd

  bool operator==(const GradientsConfig&) const = default;
};

struct DistributedConfig {
  std::int64_t zero = 0;           // 1: the optimizer's state is shared out among the ranks
  double bucket_mb = 25.0;         // MiB of gradients that are sent at once
  bool overlap = true;             // beside the backward pass
  double timeout = 600.0;          // seconds without a word from a rank until it counts as lost
  std::int64_t virtual_ranks = 1;  // ranks that are threads of this process

  bool operator==(const DistributedConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every = 0;  // steps; 0: at each evaluation, without any at every tenth of the steps
  std::int64_t keep = 2;   // newest kept; 0: all

  bool operator==(const CheckpointConfig&) const = default;
};

struct EvalConfig {
  std::int64_t every = 0;              // steps; 0: only at the end
  std::int64_t tokens = 0;             // at most this many validation tokens; 0: all
  std::vector<std::string> tasks;      // beside perplexity: names as `filigree eval --task` has them
  std::vector<std::string> task_data;  // where their questions are: PATH or NAME=PATH
  std::int64_t task_limit = 0;         // the first so many items of each task or of each of its parts; 0: all

  bool operator==(const EvalConfig&) const = default;
};

struct LogConfig {
  std::int64_t every = 10;   // steps between console lines; 0: first and last only; metrics.jsonl has every step
  bool tensorboard = false;  // event files for TensorBoard

  bool operator==(const LogConfig&) const = default;
};

struct Config {
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  WeightsConfig weights;
  AdaptersConfig adapters;
  GradientsConfig gradients;
  DistributedConfig distributed;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  LogConfig log;

  bool operator==(const Config&) const = default;
};

}  // namespace filigree
