// gradients.exchange = "powersgd" (Vogels et al., NeurIPS 2019): a matrix's gradient, residual included, is sent as the
// product of two thin ones, by one step of a power iteration that goes on from the last step's.
//
//   M (R, C) = gradient + residual     P (R, q) = sum over ranks of M · Q     P orthogonalised     Q (C, q) = sum of Mᵀ
//   · P gradient = P · Qᵀ, the same on all ranks                residual = M - gradient / ranks
//
// q · (R + C) values a matrix travel, in fp32; everything that is no matrix, or smaller than that, is sent whole. It
// needs matrices: the gradient of compressed weights has none of their rows, and is refused.
// The host orthogonalises P, R · q values a matrix, and waits for a GPU there.
#pragma once

#include "comm/bucketed_sum.h"
#include "comm/exchange_state.h"

namespace filigree {

struct PowerSgdSettings {
  std::int64_t rank = 4;  // q
  double start = 0.0;     // fraction of the steps; before it dense
  std::uint64_t seed = 1;
  std::int64_t bucket_bytes = 25 << 20;
};

// Makes the columns of a matrix (rows, columns) orthonormal, from the first to the last. A column that depends on those
// before it becomes 0.
void orthogonalize(std::vector<float>& matrix, std::int64_t rows, std::int64_t columns);

class PowerSgdExchange final : public GradientExchange {
 public:
  PowerSgdExchange(Communicator& communicator, const PowerSgdSettings& settings);

  std::string_view name() const override { return "powersgd"; }
  // Throws UserError where a weight is compressed.
  void attach(Device& device, const std::vector<Parameter*>& parameters) override;
  void begin_step(Device& device, const ExchangeStep& step) override;
  void gradient_ready(Device& device, Parameter& parameter) override;
  void finish(Device& device) override;
  void leave_out(Device& device) override;
  void save(ExchangeSink& sink) const override;
  void load(Device& device, const ExchangeSource& source) override;

 private:
  struct Entry {
    bool factored = false;
    OwnedTensor q;  // (C, q), kept from step to step
    Tensor slot;    // P, or the staged gradient
  };

  void draw(Device& device, std::size_t index);

  PowerSgdSettings settings_;
  BucketedSum sum_, second_;  // of P and whole gradients; of Q
  Residuals residuals_;
  std::vector<Entry> entries_;  // as residuals_ has them
  std::vector<std::string> names_;
  bool dense_ = true;  // this step
};

}  // namespace filigree
