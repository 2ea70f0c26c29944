#include "comm/powersgd_exchange.h"

#include <cmath>
#include <unordered_map>

#include "core/hash.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/random/random_fill.h"

namespace filigree {

void orthogonalize(std::vector<float>& matrix, std::int64_t rows, std::int64_t columns) {
  const auto at = [&](std::int64_t row, std::int64_t column) -> float& {
    return matrix[static_cast<std::size_t>(row * columns + column)];
  };
  for (std::int64_t column = 0; column < columns; ++column) {
    double before = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) before += static_cast<double>(at(row, column)) * at(row, column);
    for (std::int64_t earlier = 0; earlier < column; ++earlier) {
      double product = 0.0;
      for (std::int64_t row = 0; row < rows; ++row) product += static_cast<double>(at(row, column)) * at(row, earlier);
      for (std::int64_t row = 0; row < rows; ++row)
        at(row, column) = static_cast<float>(at(row, column) - product * at(row, earlier));
    }
    double squares = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) squares += static_cast<double>(at(row, column)) * at(row, column);
    // What is left of a dependent column is rounding.
    const double factor = squares > 1e-10 * before ? 1.0 / std::sqrt(squares) : 0.0;
    for (std::int64_t row = 0; row < rows; ++row) at(row, column) = static_cast<float>(factor * at(row, column));
  }
}

namespace {

// Products whose algorithm is chosen by rule: if each rank took the one that it timed as the fastest, each would round
// in its own way, and the copies of the model would part.
class ProductsByRule {
 public:
  explicit ProductsByRule(Device& device) : device_(device), before_(device.deterministic()) {
    device_.set_deterministic(true);
  }
  ~ProductsByRule() { device_.set_deterministic(before_); }
  ProductsByRule(const ProductsByRule&) = delete;
  ProductsByRule& operator=(const ProductsByRule&) = delete;

 private:
  Device& device_;
  bool before_;
};

}  // namespace

PowerSgdExchange::PowerSgdExchange(Communicator& communicator, const PowerSgdSettings& settings)
    : GradientExchange(communicator),
      settings_(settings),
      sum_(communicator, {.dtype = DType::f32, .bucket_bytes = settings.bucket_bytes}),
      second_(communicator, {.dtype = DType::f32, .bucket_bytes = settings.bucket_bytes}) {}

void PowerSgdExchange::attach(Device& device, const std::vector<Parameter*>& parameters) {
  for (const Parameter* parameter : parameters)
    require_user(!parameter->name().ends_with(".weight.values"),
                 "gradients.exchange: powersgd sends products of thin matrices, but " + parameter->name() +
                     " is stored compressed: its gradient is no matrix of the layer's shape; expected \"radius\", "
                     "\"randomk\", \"topk\" or \"dense\", or weights.method = \"dense\"");
  parameters_ = parameters;
  std::unordered_map<std::string, OwnedTensor> old;
  for (std::size_t index = 0; index < entries_.size(); ++index)
    old.emplace(names_[index], std::move(entries_[index].q));
  names_.clear();
  entries_.clear();
  residuals_.attach(device, parameters);
  const std::int64_t q = settings_.rank;
  std::int64_t staged = 0;
  for (std::size_t index = 0; index < residuals_.size(); ++index) {
    const Parameter& parameter = residuals_.parameter(index);
    const Shape& shape = parameter.options().shape;
    names_.push_back(parameter.name());
    Entry& entry = entries_.emplace_back();
    entry.factored = shape.rank() == 2 && q * (shape[0] + shape[1]) < parameter.count();
    if (entry.factored) {
      if (const auto found = old.find(parameter.name());
          found != old.end() && found->second.view().shape == Shape{shape[1], q}) {
        entry.q = std::move(found->second);
      } else {
        entry.q = device.memory().tensor(Purpose::gradients, DType::f32, {shape[1], q});
        draw(device, index);
      }
    }
    const std::int64_t whole = sum_.travels_in_place(parameter.count()) ? 0 : parameter.count();
    staged += std::max(whole, entry.factored ? shape[0] * q : 0);
  }
  sum_.reserve(device, staged);
}

// Where the iteration begins: the same on all ranks.
void PowerSgdExchange::draw(Device& device, std::size_t index) {
  if (device.memory().is_plan()) return;
  fill_normal(device, entries_[index].q, Random(settings_.seed, RandomPurpose::exchange, fnv1a32(names_[index])), 1.0f);
}

void PowerSgdExchange::begin_step(Device& /*device*/, const ExchangeStep& step) {
  dense_ = step.step < std::llround(settings_.start * static_cast<double>(step.steps));
  residuals_.begin_step();
  sum_.begin();
  second_.begin();
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    const Parameter& parameter = residuals_.parameter(index);
    if (!dense_ && entry.factored) {
      const std::int64_t rows = parameter.options().shape[0];
      entry.slot = sum_.announce(rows * settings_.rank, {}).reshaped({rows, settings_.rank});
      second_.announce(0, {entry.q});
      continue;
    }
    const bool in_place = sum_.travels_in_place(parameter.count());
    entry.slot = sum_.announce(in_place ? 0 : parameter.count(),
                               in_place ? std::vector<Tensor>{parameter.gradient()} : std::vector<Tensor>{});
  }
}

void PowerSgdExchange::gradient_ready(Device& device, Parameter& parameter) {
  if (parameter.count() == 0) return;
  const std::size_t index = residuals_.ready(parameter);
  const Entry& entry = entries_[index];
  const ProductsByRule by_rule(device);
  if (!dense_ && entry.factored) {
    const Tensor matrix = residuals_.residual(index).reshaped(parameter.gradient().shape);
    add(device, matrix, parameter.gradient());
    matmul(device, {.y = entry.slot, .a = matrix, .b = entry.q});
  } else if (!entry.slot.empty()) {
    convert(device, entry.slot, parameter.gradient());
  }
  sum_.ready(device);
}

void PowerSgdExchange::finish(Device& device) {
  const ProductsByRule by_rule(device);
  residuals_.finish();
  sum_.finish(device);
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    const Tensor& gradient = residuals_.parameter(index).gradient();
    if (dense_ || !entry.factored) {
      if (!entry.slot.empty()) convert(device, gradient, entry.slot);
      continue;
    }
    std::vector<float> p(static_cast<std::size_t>(entry.slot.count()));
    device.copy_to_host(p.data(), entry.slot);
    orthogonalize(p, entry.slot.shape[0], settings_.rank);
    device.copy_from_host(entry.slot, p.data());
    const Tensor matrix = residuals_.residual(index).reshaped(gradient.shape);
    matmul(device, {.y = entry.q, .a = matrix, .b = entry.slot, .transpose_a = true});
    second_.ready(device);
  }
  second_.finish(device);
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    if (dense_ || !entry.factored) continue;
    const Tensor& gradient = residuals_.parameter(index).gradient();
    const Tensor matrix = residuals_.residual(index).reshaped(gradient.shape);
    matmul(device, {.y = gradient, .a = entry.slot, .b = entry.q, .transpose_b = true});
    matmul(device, {.y = matrix,
                    .a = entry.slot,
                    .b = entry.q,
                    .transpose_b = true,
                    .accumulate = true,
                    .scale = -1.0f / static_cast<float>(communicator_.size())});
  }
}

void PowerSgdExchange::leave_out(Device& device) {
  if (!residuals_.leave_out(device, communicator_)) return;
  for (std::size_t index = 0; index < entries_.size(); ++index)
    if (entries_[index].factored) draw(device, index);
}

void PowerSgdExchange::save(ExchangeSink& sink) const {
  residuals_.save(sink);
  for (std::size_t index = 0; index < entries_.size(); ++index)
    if (entries_[index].factored) sink.put_shared("power." + residuals_.parameter(index).name(), entries_[index].q);
}

void PowerSgdExchange::load(Device& device, const ExchangeSource& source) {
  residuals_.load(device, source);
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    const std::string name = "power." + residuals_.parameter(index).name();
    if (entries_[index].factored && source.has(name)) source.load_shared(device, name, entries_[index].q);
  }
}

}  // namespace filigree
