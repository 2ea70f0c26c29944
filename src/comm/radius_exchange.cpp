#include "comm/radius_exchange.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "comm/agreement.h"
#include "kernels/elementwise/elementwise.h"

namespace filigree {

RadiusSettings radius_settings(const Config& config) {
  const GradientsConfig& gradients = config.gradients;
  const bool faithful = gradients.mode == "faithful";
  const std::string flush = gradients.flush != "auto" ? gradients.flush : faithful ? "sum" : "spread";
  const std::string clip = gradients.clip != "auto" ? gradients.clip : faithful ? "joint" : "fresh";
  return {.density = gradients.density,
          .interval = gradients.interval,
          .start = gradients.start,
          .range = gradients.range,
          .flush = flush == "sum"      ? Flush::sum
                   : flush == "split"  ? Flush::split
                   : flush == "spread" ? Flush::spread
                                       : Flush::frozen_v,
          .fresh_clip = clip == "fresh",
          .clip_norm = config.train.clip,
          .score = gradients.score == "direction"  ? Score::direction
                   : gradients.score == "gradient" ? Score::gradient
                                                   : Score::momentum,
          .stagger = gradients.stagger,
          .frozen = gradients.frozen,
          .measure = gradients.measure,
          .wire = {.dtype = gradients.wire_dtype,
                   .bucket_bytes = static_cast<std::int64_t>(config.distributed.bucket_mb * 0x1p20)}};
}

bool is_bias(std::string_view name) {
  return name.find("bias") != std::string_view::npos;
}

bool radius_flushes_apart(const RadiusSettings& settings) {
  return settings.flush == Flush::split || settings.flush == Flush::spread || settings.fresh_clip;
}

RadiusExchange::RadiusExchange(Communicator& communicator, const RadiusSettings& settings)
    : GradientExchange(communicator), settings_(settings), sum_(communicator, settings.wire) {}

// ------------------------------------------------------------------------------------------------------------ attach

void RadiusExchange::allocate(Device& device, Entry& entry) const {
  const std::int64_t count = entry.parameter->count();
  Memory& memory = device.memory();
  entry.residual = memory.tensor(Purpose::gradients, DType::f32, {count});
  if (settings_.flush == Flush::spread) entry.spread = memory.tensor(Purpose::gradients, DType::f32, {count});
  entry.mask = Mask::allocate(device, count);
  if (settings_.measure) entry.trial = Mask::allocate(device, count);
}

void RadiusExchange::attach(Device& device, const std::vector<Parameter*>& parameters) {
  parameters_ = parameters;
  std::unordered_map<std::string, Entry> old;
  for (Entry& entry : entries_) {
    const std::string name = entry.name;
    old.emplace(name, std::move(entry));
  }
  entries_.clear();
  index_.clear();
  std::int64_t staged = 0;
  for (Parameter* parameter : parameters) {
    const std::int64_t count = parameter->count();
    if (count == 0) continue;
    Entry entry;
    if (const auto found = old.find(parameter->name()); found != old.end() && found->second.count == count)
      entry = std::move(found->second);
    const bool is_new = entry.parameter == nullptr;
    entry.parameter = parameter;
    entry.name = parameter->name();
    entry.count = count;
    entry.bias = is_bias(parameter->name());
    entry.keep = chosen_entries(settings_.density, count);
    if (is_new) entry.sent = entry.keep;
    if (is_new && !entry.bias) allocate(device, entry);
    const std::int64_t whole = sum_.travels_in_place(count) ? 0 : count;
    const std::int64_t packed = entry.bias ? 0 : std::min(count, entry.keep * (2 * settings_.range + 1));
    staged += std::max(whole, packed);
    index_.emplace(parameter, entries_.size());
    entries_.push_back(std::move(entry));
  }
  const auto tensors = static_cast<std::int64_t>(entries_.size());
  for (std::int64_t index = 0; settings_.stagger && index < tensors; ++index)
    entries_[static_cast<std::size_t>(index)].offset = index * settings_.interval / tensors;
  sum_.reserve(device, staged);
}

// -------------------------------------------------------------------------------------------------------------- a step

bool RadiusExchange::is_flush(const Entry& entry) const {
  return !entry.exchanging || (step_ - entry.offset) % settings_.interval == 0;
}

// Steps since the entry's mask was chosen, or 0 when it is chosen in this one.
std::int64_t RadiusExchange::steps_since_flush(const Entry& entry) const {
  const std::int64_t before = step_ - 1 - entry.offset;  // a flush in the last step has before % interval = 0
  const std::int64_t last = before >= 0 ? step_ - 1 - before % settings_.interval : step_;
  return step_ - (step_ > start_ ? std::max(last, start_) : last);
}

void RadiusExchange::begin_step(Device& device, const ExchangeStep& step) {
  if (masks_changed_) check_masks(device);
  step_ = step.step;
  start_ = std::llround(settings_.start * static_cast<double>(step.steps));
  next_ = 0;
  report_.clear();
  sum_.begin();
  for (Entry& entry : entries_) begin_entry(entry);
}

void RadiusExchange::begin_entry(Entry& entry) {
  entry.stage = Stage::packed;
  // One that has begun goes on where more train.steps have moved the start behind it.
  if (entry.bias || (step_ < start_ && !entry.exchanging))
    entry.stage = Stage::whole;
  else if (is_flush(entry))
    entry.stage = Stage::flush;
  if (entry.stage == Stage::packed) {
    entry.slot = sum_.announce(entry.sent, {});
    return;
  }
  std::vector<Tensor> in_place;
  const bool staged = !sum_.travels_in_place(entry.count);
  if (!staged) in_place.push_back(entry.parameter->gradient());
  if (entry.stage == Stage::flush && entry.waiting && flushes_apart()) in_place.push_back(entry.residual);
  entry.slot = sum_.announce(staged ? entry.count : 0, in_place);
}

void RadiusExchange::gradient_ready(Device& device, Parameter& parameter) {
  if (parameter.count() == 0) return;
  require(next_ < entries_.size(), "more gradients are ready than there are parameters");
  Entry& entry = entries_[next_++];
  require(entry.parameter == &parameter, parameter.name() + ": its gradient is ready out of turn");
  if (entry.stage == Stage::packed) {
    const CompactArgs args = {.packed = entry.slot,
                              .gradient = parameter.gradient().as<float>(),
                              .residual = entry.residual.view().as<float>(),
                              .chosen = entry.mask.view()};
    compact(device, {&args, 1});
    entry.waiting = entry.waiting || entry.sent < entry.count;
  } else {
    if (entry.stage == Stage::flush && entry.waiting && !flushes_apart()) {
      add(device, parameter.gradient(), entry.residual.view().reshaped(parameter.gradient().shape));
      fill(device, entry.residual, 0.0f);
    }
    if (!entry.slot.empty()) convert(device, entry.slot, parameter.gradient());
  }
  sum_.ready(device);
}

void RadiusExchange::finish(Device& device) {
  require(next_ == entries_.size(), "a parameter's gradient was never ready");
  sum_.finish(device);
  for (const Entry& entry : entries_)
    if (entry.stage != Stage::packed && !entry.slot.empty()) convert(device, entry.parameter->gradient(), entry.slot);
}

double RadiusExchange::sum_of_squares(Device& device) {
  std::vector<Tensor> fresh, waited;
  for (const Entry& entry : entries_) {
    fresh.push_back(entry.stage == Stage::packed ? entry.slot : entry.parameter->gradient());
    if (entry.stage == Stage::flush && entry.waiting && flushes_apart()) waited.push_back(entry.residual);
  }
  if (waited.empty()) return filigree::sum_of_squares(device, fresh);
  if (!settings_.fresh_clip) {
    fresh.insert(fresh.end(), waited.begin(), waited.end());
    return filigree::sum_of_squares(device, fresh);
  }
  // Each of the gradients that waited could have had the norm that clipping allows.
  const double norm = std::sqrt(filigree::sum_of_squares(device, waited));
  const double limit = settings_.clip_norm * static_cast<double>(settings_.interval);
  flush_clip_ = limit > 0.0 && norm > limit ? limit / norm : 1.0;
  const double squares = filigree::sum_of_squares(device, fresh);
  return std::isfinite(norm) ? squares : norm;
}

SelectedAdamWArgs RadiusExchange::update_of(Device& device, Entry& entry, const AdamWArgs& adamw) {
  SelectedAdamWArgs args = {.adamw = adamw};
  if ((entry.stage == Stage::flush || is_measured(entry)) && settings_.score == Score::direction && !entry.bias)
    args.direction = entry.parameter->gradient().as<float>();
  if (entry.stage == Stage::packed) {
    args.chosen = entry.mask.view();
    args.packed = entry.slot;
    args.others = settings_.frozen                ? OtherEntries::frozen
                  : settings_.flush == Flush::sum ? OtherEntries::decay
                                                  : OtherEntries::hold;
    if (entry.spreading) args.extra = entry.spread.view().as<float>();
    return args;
  }
  entry.spreading = entry.spreading && entry.stage != Stage::flush;
  if (entry.stage == Stage::whole || !entry.waiting) return args;  // every gradient is known and fresh
  args.chosen = entry.mask.view();
  args.others = settings_.flush == Flush::sum        ? OtherEntries::decay
                : settings_.flush == Flush::frozen_v ? OtherEntries::hold
                                                     : OtherEntries::window;
  args.beta2_window =
      static_cast<float>(std::pow(static_cast<double>(adamw.beta2), static_cast<double>(steps_since_flush(entry))));
  if (!flushes_apart()) return args;
  // The residual is the sum over the ranks now.
  args.extra = entry.residual.view().as<float>();
  args.extra_factor = settings_.fresh_clip ? static_cast<float>(flush_clip_) : adamw.step.clip;
  args.extra_in_v = settings_.flush == Flush::sum;
  if (settings_.flush == Flush::spread) {
    device.copy(entry.spread, entry.residual);
    scale(device, entry.spread, args.extra_factor / static_cast<float>(settings_.interval));
    args.extra = entry.spread.view().as<float>();
    args.extra_factor = 1.0f;
    entry.spreading = true;
  }
  return args;
}

void RadiusExchange::update(Device& device, std::span<const ParameterUpdate> updates) {
  std::vector<SelectedAdamWArgs> all;
  for (const ParameterUpdate& update : updates) {
    if (update.parameter->count() == 0) continue;
    require(update.begin == 0 && update.args.count == update.parameter->count(),
            "radius updates whole parameters: the optimizer's state cannot be sharded");
    all.push_back(update_of(device, entries_[index_.at(update.parameter)], update.args));
  }
  selected_adamw(device, all);
  std::int64_t flushed = 0;
  for (Entry& entry : entries_) {
    if (entry.stage != Stage::flush) continue;
    ++flushed;
    if (entry.waiting && flushes_apart()) fill(device, entry.residual, 0.0f);
    entry.waiting = false;
  }
  report_.emplace_back("flushed_tensors", static_cast<double>(flushed));
  choose(device);
}

// The update was left out because a number was not finite. Residuals that have taken it up would pass it on at the next
// flush.
void RadiusExchange::leave_out(Device& device) {
  std::vector<Tensor> residuals;
  for (Entry& entry : entries_) {
    if (entry.bias) continue;
    if (entry.stage == Stage::flush) entry.spreading = false;  // all parts of the last one have been added
    if (entry.stage == Stage::flush && entry.waiting) {        // it holds the sum over the ranks
      fill(device, entry.residual, 0.0f);
      entry.waiting = false;
    }
    residuals.push_back(entry.residual);
  }
  if (std::isfinite(communicator_.sum(filigree::sum_of_squares(device, residuals)))) return;
  for (Entry& entry : entries_) {
    if (!entry.bias) fill(device, entry.residual, 0.0f);
    entry.waiting = false;
  }
}

// ----------------------------------------------------------------------------------------------------------- selection

const float* RadiusExchange::scores(const Entry& entry) const {
  return settings_.score == Score::momentum ? entry.parameter->m().as<float>()
                                            : entry.parameter->gradient().as<float>();
}

// At 1, 2, 4, ... steps of age a mask is compared with the one that would be chosen now, and at its end with the one
// that is.
bool RadiusExchange::is_measured(const Entry& entry) const {
  if (!settings_.measure || entry.bias) return false;
  if (entry.stage == Stage::flush) return true;
  // Of a gradient only the chosen entries are known then.
  if (entry.stage == Stage::packed && settings_.score == Score::gradient) return false;
  const bool selects = entry.stage == Stage::whole && (step_ - entry.offset) % settings_.interval == 0;
  const std::int64_t age = steps_since_flush(entry);
  return selects || (entry.chosen && (age & (age - 1)) == 0);
}

void RadiusExchange::choose(Device& device) {
  std::vector<LargestArgs> largest;
  std::vector<Entry*> renewed;
  std::vector<const Entry*> aged, shares;
  std::vector<MeasureArgs> age_args, share_args;
  for (Entry& entry : entries_) {
    const bool measured = is_measured(entry);
    const bool renews = entry.stage == Stage::flush ||
                        (measured && entry.stage == Stage::whole && (step_ - entry.offset) % settings_.interval == 0);
    if (entry.bias || (!measured && !renews)) continue;
    const bool compares = measured && entry.chosen;
    largest.push_back({.chosen = (compares ? entry.trial : entry.mask).view(),
                       .scores = scores(entry),
                       .keep = entry.keep,
                       .radius = settings_.range});
    if (compares) {
      aged.push_back(&entry);
      age_args.push_back({.chosen = entry.mask.view(), .other = entry.trial.view()});
    }
    if (!renews) continue;
    renewed.push_back(&entry);
    if (!measured) continue;
    shares.push_back(&entry);
    share_args.push_back({.chosen = (compares ? entry.trial : entry.mask).view(), .scores = scores(entry)});
  }
  select_largest(device, largest);
  if (!aged.empty()) report_measures(aged, measure(device, age_args), true);
  if (!shares.empty()) report_measures(shares, measure(device, share_args), false);
  for (Entry* entry : renewed) {
    if (settings_.measure && entry->chosen) std::swap(entry->mask, entry->trial);
    entry->chosen = true;
    if (entry->stage != Stage::flush) continue;
    entry->exchanging = masks_changed_ = true;
  }
}

void RadiusExchange::report_measures(const std::vector<const Entry*>& entries,
                                     const std::vector<SelectionMeasure>& measures, bool ages) {
  const char* const what = ages ? "mask_survival" : "update_share";
  double part = 0.0, whole = 0.0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const SelectionMeasure& measured = measures[i];
    const double of = ages ? static_cast<double>(measured.chosen) : measured.all_squares;
    const double some = ages ? static_cast<double>(measured.common) : measured.chosen_squares;
    part += some;
    whole += of;
    report_.emplace_back(std::string(what) + "." + entries[i]->name, of > 0.0 ? some / of : 0.0);
  }
  report_.emplace_back(what, whole > 0.0 ? part / whole : 0.0);
  if (ages) report_.emplace_back("mask_age", static_cast<double>(steps_since_flush(*entries.front())));
}

// All ranks have chosen by the same numbers; if they have not chosen the same, nothing after is right.
void RadiusExchange::check_masks(Device& device) {
  std::vector<Selection> masks;
  for (Entry& entry : entries_) {
    if (!entry.exchanging) continue;
    masks.push_back(entry.mask.view());
    if (settings_.range == 0) continue;
    const Tensor last = entry.mask.before.view().slice(selection_counts(entry.count) - 1, 1);
    std::int32_t sent = 0;
    device.copy_to_host(&sent, last);
    entry.sent = sent;
  }
  const std::uint64_t hash = selection_hash(device, masks);
  if (!communicator_.agree(hash))
    throw_once(communicator_, Error("step " + std::to_string(step_ + 1) +
                                    ": the ranks have chosen different entries to send; their parameters differ. "
                                    "Resume from the last checkpoint"));
  masks_changed_ = false;
}

// --------------------------------------------------------------------------------------------------------- checkpoints

namespace {

Tensor as_bytes(const Tensor& tensor) {
  return {tensor.data, DType::u8, {static_cast<std::int64_t>(tensor.bytes())}};
}

}  // namespace

void RadiusExchange::save(ExchangeSink& sink) const {
  for (const Entry& entry : entries_) {
    if (entry.chosen) {
      const std::string kind = entry.exchanging ? "mask" : "measured_mask";
      sink.put_shared(kind + "." + entry.name, as_bytes(entry.mask.bits));
      sink.put_shared(kind + "_counts." + entry.name, as_bytes(entry.mask.before));
    }
    if (entry.waiting) sink.put_per_rank("residual." + entry.name, entry.residual);
    if (entry.spreading) sink.put_shared("spread." + entry.name, entry.spread);
  }
}

void RadiusExchange::load(Device& device, const ExchangeSource& source) {
  for (Entry& entry : entries_) {
    if (entry.bias) continue;
    entry.exchanging = source.has("mask." + entry.name);
    const std::string kind = entry.exchanging ? "mask" : "measured_mask";
    entry.chosen = source.has(kind + "." + entry.name) && (entry.exchanging || settings_.measure);
    if (entry.chosen) {
      source.load_shared(device, kind + "." + entry.name, as_bytes(entry.mask.bits));
      source.load_shared(device, kind + "_counts." + entry.name, as_bytes(entry.mask.before));
    }
    masks_changed_ = masks_changed_ || entry.exchanging;
    entry.waiting = source.has("residual." + entry.name);
    if (entry.waiting) source.load_per_rank(device, "residual." + entry.name, entry.residual);
    entry.spreading = settings_.flush == Flush::spread && source.has("spread." + entry.name);
    if (entry.spreading) source.load_shared(device, "spread." + entry.name, entry.spread);
  }
}

}  // namespace filigree
