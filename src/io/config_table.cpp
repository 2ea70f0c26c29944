// The table itself: one entry a key, in the order in which a configuration is written.
#include <type_traits>
#include <utility>

#include "io/config_keys.h"
#include "io/layer_pattern.h"
#include "io/model_presets.h"
#include "io/tokenizer_rule.h"

namespace filigree {

namespace {

// Between a member of Config and a ConfigValue.
template <typename T>
ConfigValue to_value(const T& member) {
  if constexpr (std::is_same_v<T, DType>)
    return std::string(name_of(member));
  else if constexpr (std::is_same_v<T, Pattern> || std::is_same_v<T, BlockShape>)
    return to_string(member);
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return static_cast<std::int64_t>(member);
  else
    return member;
}

template <typename T>
void from_value(T& member, const ConfigValue& value) {
  if constexpr (std::is_same_v<T, DType>)
    member = std::get<std::string>(value) == name_of(DType::bf16) ? DType::bf16 : DType::f32;
  else if constexpr (std::is_same_v<T, Pattern>)
    member = parse_pattern(std::get<std::string>(value)).value_or(Pattern{});
  else if constexpr (std::is_same_v<T, BlockShape>)
    member = parse_block(std::get<std::string>(value)).value_or(kAutoBlock);
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    member = static_cast<T>(std::get<std::int64_t>(value));
  else
    member = std::get<T>(value);
}

template <typename T>
constexpr Kind kind_of() {
  if (std::is_same_v<T, bool>) return Kind::boolean;
  if (std::is_integral_v<T>) return Kind::integer;
  if (std::is_same_v<T, double>) return Kind::number;
  if (std::is_same_v<T, std::vector<std::string>>) return Kind::text_list;
  if (std::is_same_v<T, std::vector<WeightsConfig::Override>>) return Kind::overrides;
  return Kind::text;
}

template <auto Section, auto Member>
ConfigKey key(std::string_view name, std::string_view doc) {
  using T = std::remove_reference_t<decltype(std::declval<Config&>().*Section.*Member)>;
  ConfigKey result;
  result.name = name;
  result.doc = doc;
  result.kind = kind_of<T>();
  result.get = [](const Config& config) { return to_value(config.*Section.*Member); };
  result.set = [](Config& config, const ConfigValue& value) { from_value(config.*Section.*Member, value); };
  return result;
}

ConfigKey ranged(ConfigKey key, double minimum, double maximum) {
  key.minimum = minimum;
  key.maximum = maximum;
  return key;
}
// minimum < value <= maximum
ConfigKey ranged_above(ConfigKey key, double minimum, double maximum) {
  key.above = true;
  return ranged(std::move(key), minimum, maximum);
}
// minimum < value
ConfigKey positive(ConfigKey key) {
  key = ranged(std::move(key), 0.0, std::numeric_limits<double>::max());
  key.above = true;
  return key;
}
ConfigKey chosen(ConfigKey key, std::vector<Choice> choices) {
  key.choices = std::move(choices);
  return key;
}
ConfigKey checked(ConfigKey key, bool (*valid)(std::string_view), std::string_view form) {
  key.valid = valid;
  key.form = form;
  return key;
}
ConfigKey required(ConfigKey key) {
  key.required = true;
  return key;
}
ConfigKey resumable(ConfigKey key) {
  key.resumable = true;
  return key;
}
ConfigKey path(ConfigKey key) {
  key.path = true;
  return key;
}

// The optimizer's two decay rates are one key, as in every paper.
ConfigKey betas() {
  ConfigKey result;
  result.name = "train.betas";
  result.doc = "AdamW's decay rates of the first and second moment";
  result.kind = Kind::number_pair;
  result.get = [](const Config& config) -> ConfigValue {
    return std::vector<double>{config.train.beta1, config.train.beta2};
  };
  result.set = [](Config& config, const ConfigValue& value) {
    const auto& pair = std::get<std::vector<double>>(value);
    config.train.beta1 = pair.at(0);
    config.train.beta2 = pair.at(1);
  };
  result.below = true;
  return ranged(std::move(result), 0.0, 1.0);
}

std::vector<Choice> preset_choices() {
  std::vector<Choice> choices = {{""}};
  for (const ModelConfig& preset : model_presets()) choices.push_back({preset.preset});
  return choices;
}

bool is_pattern(std::string_view text) {
  return parse_pattern(text).has_value();
}
bool is_block(std::string_view text) {
  return parse_block(text).has_value();
}
bool is_layer_pattern(std::string_view text) {
  return layer_pattern_problem(text).empty();
}
bool is_tokenizer(std::string_view text) {
  return !is_sentencepiece_rule(text) || sentencepiece_vocab(text);
}
bool is_not_empty(std::string_view text) {
  return !text.empty();
}

static_assert(kSmallestSentencePieceVocab == 259 && kLargestSentencePieceVocab == 1'000'000);
constexpr std::string_view kTokenizerForm =
    "\"bytes\", \"spm:VOCAB\" with VOCAB from 259 (the bytes and three more) to 1000000, or a tokenizer's file or "
    "folder";

constexpr std::string_view kNoMethod = "this weight method";

// Bounds far above any model, low enough that products of two never overflow.
constexpr double kMaxLayers = 1024, kMaxWidth = 1 << 20, kMaxRows = 1 << 24, kMaxSteps = 1e12, kMaxTokens = 1e15;

std::vector<ConfigKey> make_keys() {
  std::vector<ConfigKey> keys;
  const auto add = [&](ConfigKey entry) { keys.push_back(std::move(entry)); };

  add(ranged(key<&Config::run, &RunConfig::seed>("run.seed", "seed of every random choice"), 0, 0x1p63));
  add(resumable(
      chosen(key<&Config::run, &RunConfig::device>("run.device", "where the run computes; auto: on a GPU, if it can"),
             {{"auto"}, {"cpu"}, {"cuda"}})));
  add(chosen(key<&Config::run, &RunConfig::precision>("run.precision",
                                                      "type of weights and activations; sums are fp32 either way"),
             {{"fp32"}, {"bf16"}}));
  add(key<&Config::run, &RunConfig::deterministic>("run.deterministic",
                                                   "a fixed rule instead of timing chooses each layer's kernel"));
  add(key<&Config::run, &RunConfig::require_sparse>(
      "run.require_sparse",
      "a sparse layer's product that would run dense is an error; SLoPe's dW on a GPU always "
      "does, and is none"));
  add(resumable(ranged(
      key<&Config::run, &RunConfig::threads>("run.threads", "processor threads; 0: all that the process may use"), 0,
      4096)));

  add(chosen(key<&Config::model, &ModelConfig::preset>("model.preset", "a published shape; keys beside it override it"),
             preset_choices()));
  add(chosen(key<&Config::model, &ModelConfig::arch>("model.arch", "architecture"), {{"gpt2"}, {"opt"}, {"llama"}}));
  add(ranged(key<&Config::model, &ModelConfig::layers>("model.layers", "blocks"), 1, kMaxLayers));
  add(ranged(key<&Config::model, &ModelConfig::width>("model.width", "channels of the residual stream"), 1, kMaxWidth));
  add(ranged(key<&Config::model, &ModelConfig::heads>("model.heads", "attention heads"), 1, kMaxWidth));
  add(ranged(key<&Config::model, &ModelConfig::kv_heads>("model.kv_heads", "key and value heads; 0: as heads"), 0,
             kMaxWidth));
  add(ranged(key<&Config::model, &ModelConfig::ffn>("model.ffn", "hidden width of the MLP; 0: from the width"), 0,
             kMaxRows));
  add(ranged(key<&Config::model, &ModelConfig::vocab>(
                 "model.vocab",
                 "rows of the embedding; 0: the tokenizer's entries, from 1024 on rounded up to a multiple of 64"),
             0, kMaxRows));
  add(ranged(key<&Config::model, &ModelConfig::context>("model.context", "tokens of a sequence"), 1, kMaxRows));
  add(positive(
      key<&Config::model, &ModelConfig::norm_epsilon>("model.norm_epsilon", "added to the variance in norms")));
  add(positive(key<&Config::model, &ModelConfig::rope_base>("model.rope_base", "base of the rotary angles (llama)")));
  add(key<&Config::model, &ModelConfig::tied>("model.tied",
                                              "the head shares the embedding; by default in gpt2 and opt"));
  add(path(key<&Config::model, &ModelConfig::init>(
      "model.init", "run, checkpoint or Hugging Face folder to start from, and to take the shape from")));

  add(required(
      path(checked(key<&Config::data, &DataConfig::train>("data.train", "token shards or text to train on; globs"),
                   is_not_empty, "a path or glob in quotes, or a list of them"))));
  add(path(checked(key<&Config::data, &DataConfig::val>("data.val", "token shards or text to validate on; globs"),
                   is_not_empty, "a path or glob in quotes, or a list of them")));
  add(path(checked(
      key<&Config::data, &DataConfig::tokenizer>("data.tokenizer", "how text becomes tokens; \"\": as the shards say"),
      is_tokenizer, kTokenizerForm)));

  add(required(
      resumable(ranged(key<&Config::train, &TrainConfig::steps>("train.steps", "optimizer steps"), 1, kMaxSteps))));
  add(required(
      ranged(key<&Config::train, &TrainConfig::batch_tokens>("train.batch_tokens", "tokens of an optimizer step"), 1,
             kMaxTokens)));
  add(ranged(key<&Config::train, &TrainConfig::micro_batch>(
                 "train.micro_batch", "sequences at once; 0: the whole batch, which takes the most memory"),
             0, kMaxWidth));
  add(positive(key<&Config::train, &TrainConfig::lr>("train.lr", "peak learning rate, after the warm-up")));
  add(chosen(key<&Config::train, &TrainConfig::schedule>("train.schedule", "learning rate after the warm-up"),
             {{"cosine"}, {"linear"}, {"constant"}}));
  add(ranged(key<&Config::train, &TrainConfig::warmup>("train.warmup", "steps of linear warm-up"), 0, kMaxSteps));
  add(ranged(key<&Config::train, &TrainConfig::min_lr>("train.min_lr", "the schedule's end, as a fraction of lr"), 0.0,
             1.0));
  add(ranged(
      key<&Config::train, &TrainConfig::weight_decay>("train.weight_decay", "on matrices; never on biases and norms"),
      0.0, 1e6));
  add(betas());
  add(positive(key<&Config::train, &TrainConfig::eps>("train.eps", "AdamW's epsilon")));
  add(ranged(key<&Config::train, &TrainConfig::clip>("train.clip", "largest global gradient norm; 0: off"), 0.0, 1e30));
  add(chosen(key<&Config::train, &TrainConfig::recompute>("train.recompute",
                                                          "what the backward pass computes again instead of keeping"),
             {{"none"}, {"norm"}, {"activation"}, {"block"}}));
  add(chosen(key<&Config::train, &TrainConfig::on_nonfinite>(
                 "train.on_nonfinite", "at a loss or gradient that is not finite: stop, or skip the step"),
             {{"stop"}, {"skip"}}));

  add(chosen(key<&Config::weights, &WeightsConfig::method>("weights.method", "how linear layers hold their weights"),
             {{"dense"},
              {"slope"},
              {"block"},
              {"srste", kNoMethod},
              {"fst", kNoMethod},
              {"sste", kNoMethod},
              {"step", kNoMethod}}));
  add(checked(
      key<&Config::weights, &WeightsConfig::pattern>("weights.pattern", "entries kept of each group along a row"),
      is_pattern, "\"KEEP:OF\" with 1 <= KEEP < OF <= 32, e.g. \"2:4\""));
  add(checked(
      key<&Config::weights, &WeightsConfig::block>("weights.block", "outputs x inputs of a block that is kept or not"),
      is_block, "\"OUTPUTSxINPUTS\", each from 4 to 1024, e.g. \"16x16\", or \"auto\""));
  ConfigKey density =
      key<&Config::weights, &WeightsConfig::density>("weights.density", "share of a layer's blocks that is kept");
  density = ranged(std::move(density), 0.0, 1.0);
  density.above = true;
  add(std::move(density));
  add(chosen(
      key<&Config::weights, &WeightsConfig::mask>("weights.mask", "how the kept entries are chosen at the start"),
      {{"auto"}, {"random"}, {"magnitude"}, {"balanced"}, {"diagonal-band"}}));
  add(chosen(key<&Config::weights, &WeightsConfig::column_mask>("weights.column_mask",
                                                                "the second pruning: anew each step, or once"),
             {{"dynamic"}, {"fixed"}}));
  add(ranged(
      key<&Config::weights, &WeightsConfig::start>("weights.start", "fraction of the steps before which all is dense"),
      0.0, 1.0));
  add(positive(key<&Config::weights, &WeightsConfig::dx_rescale>("weights.dx_rescale",
                                                                 "factor on the gradient of a sparse layer's input")));
  add(chosen(key<&Config::weights, &WeightsConfig::init_scale>("weights.init_scale", "initial scale of a sparse layer"),
             {{"energy"}, {"none"}}));
  add(checked(key<&Config::weights, &WeightsConfig::dense_layers>("weights.dense_layers",
                                                                  "layers that stay dense; * and A-B allowed"),
              is_layer_pattern,
              "a layer name or a list of them, such as \"blocks.*.mlp.*\", \"blocks.0-3.*\" or \"head\""));
  ConfigKey overrides = key<&Config::weights, &WeightsConfig::overrides>(
      "weights.overrides", "[[weights.override]]: layers, and what is different in them");
  overrides.name = "weights.override";
  add(std::move(overrides));

  add(ranged(key<&Config::adapters, &AdaptersConfig::rank>("adapters.rank", "rank of the low-rank adapters; 0: none"),
             0, kMaxWidth));
  add(ranged(key<&Config::adapters, &AdaptersConfig::start>("adapters.start",
                                                            "fraction of the steps at which they are inserted"),
             0.0, 1.0));
  add(chosen(key<&Config::adapters, &AdaptersConfig::init>("adapters.init", "how they are initialised"),
             {{"normal"}, {"scaled"}}));
  add(ranged(key<&Config::adapters, &AdaptersConfig::rewarm>("adapters.rewarm",
                                                             "learning rate at insertion, as a share of the peak"),
             0.0, 1.0));

  add(chosen(key<&Config::gradients, &GradientsConfig::exchange>("gradients.exchange",
                                                                 "which gradients the ranks exchange; dense: all"),
             {{"dense"}, {"radius"}, {"topk"}, {"randomk"}, {"powersgd"}}));
  add(ranged_above(key<&Config::gradients, &GradientsConfig::density>(
                       "gradients.density", "radius, topk, randomk: share of each tensor's entries that is sent"),
                   0.0, 1.0));
  add(ranged(key<&Config::gradients, &GradientsConfig::start>(
                 "gradients.start", "fraction of the steps at which the exchange begins; before it dense"),
             0.0, 1.0));
  add(chosen(key<&Config::gradients, &GradientsConfig::wire_dtype>("gradients.wire_dtype",
                                                                   "in which type gradients travel between ranks"),
             {{"fp32"}, {"bf16"}}));
  add(key<&Config::gradients, &GradientsConfig::sparse_rows>(
      "gradients.sparse_rows",
      "of an untied embedding only rows that have a gradient are sent, exactly, where that is fewer bytes"));
  add(ranged(
      key<&Config::gradients, &GradientsConfig::interval>("gradients.interval", "radius: steps between two selections"),
      1, 1e6));
  add(ranged(key<&Config::gradients, &GradientsConfig::range>(
                 "gradients.range", "radius: entries to each side of a chosen one that are sent with it"),
             0, 1e6));
  add(chosen(key<&Config::gradients, &GradientsConfig::mode>("gradients.mode", "radius: as published, or mended"),
             {{"faithful"}, {"improved"}}));
  add(chosen(key<&Config::gradients, &GradientsConfig::flush>(
                 "gradients.flush",
                 "radius: how gradients that waited enter the moments; auto: sum in faithful mode, spread in improved"),
             {{"auto"}, {"sum"}, {"split"}, {"spread"}, {"frozen_v"}}));
  add(chosen(key<&Config::gradients, &GradientsConfig::clip>(
                 "gradients.clip",
                 "radius: train.clip sees waiting gradients with the others (joint) or apart (fresh); auto: joint in "
                 "faithful mode, fresh in improved"),
             {{"auto"}, {"joint"}, {"fresh"}}));
  add(chosen(key<&Config::gradients, &GradientsConfig::score>(
                 "gradients.score", "radius: what entries are chosen by: AdamW's direction, the gradient, or m"),
             {{"direction"}, {"gradient"}, {"momentum"}}));
  add(key<&Config::gradients, &GradientsConfig::stagger>("gradients.stagger",
                                                         "radius: tensors flush in turn, so that no step is dense"));
  add(key<&Config::gradients, &GradientsConfig::frozen>(
      "gradients.frozen", "radius: entries that are not sent do not move between two flushes"));
  add(resumable(key<&Config::gradients, &GradientsConfig::measure>(
      "gradients.measure",
      "radius: measure the chosen entries' share of the update, and how long they stay the same")));
  add(ranged(key<&Config::gradients, &GradientsConfig::warmup>("gradients.warmup",
                                                               "topk: steps over which the density falls from 1"),
             0, 1e9));
  add(ranged(key<&Config::gradients, &GradientsConfig::rank>("gradients.rank", "powersgd: rank of what is sent"), 1,
             1024));

  add(resumable(ranged(key<&Config::distributed, &DistributedConfig::zero>(
                           "distributed.zero", "1: each rank keeps its part of the optimizer's state; 0: all of it"),
                       0, 1)));
  add(resumable(positive(key<&Config::distributed, &DistributedConfig::bucket_mb>(
      "distributed.bucket_mb", "MiB of gradients that are sent at once"))));
  add(resumable(key<&Config::distributed, &DistributedConfig::overlap>(
      "distributed.overlap", "gradients travel beside the backward pass, not after it")));
  add(resumable(ranged(key<&Config::distributed, &DistributedConfig::timeout>(
                           "distributed.timeout", "seconds without a word from a rank until it counts as lost"),
                       1.0, 1e6)));
  add(resumable(ranged(key<&Config::distributed, &DistributedConfig::virtual_ranks>(
                           "distributed.virtual_ranks", "ranks that are threads of this process, to study an exchange"),
                       1, 64)));

  add(resumable(ranged(key<&Config::checkpoint, &CheckpointConfig::every>(
                           "checkpoint.every",
                           "steps between checkpoints; 0: at each evaluation, without any at every tenth of the steps"),
                       0, kMaxSteps)));
  add(resumable(ranged(key<&Config::checkpoint, &CheckpointConfig::keep>(
                           "checkpoint.keep", "newest checkpoints that are kept; 0: all of them"),
                       0, kMaxSteps)));
  add(resumable(ranged(
      key<&Config::eval, &EvalConfig::every>("eval.every", "steps between validations; 0: only after the last step"), 0,
      kMaxSteps)));
  add(resumable(
      ranged(key<&Config::eval, &EvalConfig::tokens>("eval.tokens", "most validation tokens; 0: all"), 0, kMaxTokens)));
  add(resumable(key<&Config::eval, &EvalConfig::tasks>(
      "eval.tasks",
      "tasks that are scored at each evaluation beside perplexity, named as for `filigree eval --task`")));
  ConfigKey task_data = key<&Config::eval, &EvalConfig::task_data>(
      "eval.task_data", "where their questions are: folders, files, or NAME=PATH, as for `filigree eval --task-data`");
  task_data.path = task_data.named = true;
  add(resumable(task_data));
  add(resumable(
      ranged(key<&Config::eval, &EvalConfig::task_limit>(
                 "eval.task_limit", "the first so many items of each task, or of each of its parts; 0: all of them"),
             0, kMaxTokens)));
  add(resumable(ranged(
      key<&Config::log, &LogConfig::every>("log.every", "steps between console lines; 0: only the first and the last"),
      0, kMaxSteps)));
  add(resumable(key<&Config::log, &LogConfig::tensorboard>(
      "log.tensorboard", "write RUN/tensorboard/ as well: scalars of each step, histograms of the weights, texts")));
  return keys;
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

}  // namespace filigree
