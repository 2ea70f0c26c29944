// gradients.sparse_rows: the gradient of an untied embedding has values only in rows whose tokens the step has seen.
// They are sent as a list of rows, which all ranks gather and add in the order of the ranks: exactly what a sum over
// all rows gives. The other parameters are another exchange's.
//
// A rank's list has room for as many rows as it has tokens in a step, so that its length is known without waiting:
// (P-1) · rows · (4 + C · bytes of a value) bytes, against 2 (P-1)/P · V · C · bytes for the sum.
#pragma once

#include <memory>

#include "comm/gradient_exchange.h"

namespace filigree {

// Whether lists of `rows` rows take fewer bytes than the sum of a matrix (V, C).
bool rows_pay(std::int64_t ranks, std::int64_t rows, const Shape& matrix, DType wire);

class RowSparseExchange final : public GradientExchange {
 public:
  // name: of the parameter; rows: how many a rank can have at most.
  RowSparseExchange(Communicator& communicator, std::unique_ptr<GradientExchange> others, std::string name,
                    std::int64_t rows, DType wire);

  std::string_view name() const override { return others_->name(); }
  void attach(Device& device, const std::vector<Parameter*>& parameters) override;
  void begin_step(Device& device, const ExchangeStep& step) override { others_->begin_step(device, step); }
  void gradient_ready(Device& device, Parameter& parameter) override;
  void finish(Device& device) override;
  double sum_of_squares(Device& device) override;
  void update(Device& device, std::span<const ParameterUpdate> updates) override;
  void leave_out(Device& device) override { others_->leave_out(device); }
  void save(ExchangeSink& sink) const override { others_->save(sink); }
  void load(Device& device, const ExchangeSource& source) override { others_->load(device, source); }
  std::vector<std::pair<std::string, double>> report() const override { return others_->report(); }

 private:
  std::unique_ptr<GradientExchange> others_;
  std::string matrix_name_;
  std::int64_t rows_;
  DType wire_;
  Parameter* matrix_ = nullptr;           // null where it is none of the parameters
  OwnedTensor indices_, values_;          // of this rank
  OwnedTensor all_indices_, all_values_;  // of all ranks
  Pending pending_indices_, pending_values_;
};

}  // namespace filigree
