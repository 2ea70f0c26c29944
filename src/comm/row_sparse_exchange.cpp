#include "comm/row_sparse_exchange.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/selection/rows.h"

namespace filigree {

bool rows_pay(std::int64_t ranks, std::int64_t rows, const Shape& matrix, DType wire) {
  const auto value = static_cast<std::int64_t>(size_of(wire));
  const std::int64_t list = rows * (4 + matrix[1] * value);
  return ranks > 1 && list * ranks < 2 * matrix.count() * value;
}

RowSparseExchange::RowSparseExchange(Communicator& communicator, std::unique_ptr<GradientExchange> others,
                                     std::string name, std::int64_t rows, DType wire)
    : GradientExchange(communicator),
      others_(std::move(others)),
      matrix_name_(std::move(name)),
      rows_(rows),
      wire_(wire) {}

void RowSparseExchange::attach(Device& device, const std::vector<Parameter*>& parameters) {
  parameters_ = parameters;
  matrix_ = nullptr;
  std::vector<Parameter*> others;
  for (Parameter* parameter : parameters) {
    if (parameter->name() == matrix_name_)
      matrix_ = parameter;
    else
      others.push_back(parameter);
  }
  others_->attach(device, others);
  if (!matrix_ || !indices_.empty()) return;
  Memory& memory = device.memory();
  const std::int64_t columns = matrix_->gradient().shape[1];
  const std::int64_t all = rows_ * communicator_.size();
  indices_ = memory.tensor(Purpose::gradients, DType::i32, {rows_});
  values_ = memory.tensor(Purpose::gradients, wire_, {rows_, columns});
  all_indices_ = memory.tensor(Purpose::gradients, DType::i32, {all});
  all_values_ = memory.tensor(Purpose::gradients, wire_, {all, columns});
}

void RowSparseExchange::gradient_ready(Device& device, Parameter& parameter) {
  if (&parameter != matrix_) return others_->gradient_ready(device, parameter);
  list_rows(device, indices_, parameter.gradient());
  gather_rows(device, values_, indices_, parameter.gradient());
  pending_indices_ = communicator_.all_gather(device, all_indices_, indices_);
  pending_values_ = communicator_.all_gather(device, all_values_, values_);
}

void RowSparseExchange::finish(Device& device) {
  others_->finish(device);
  if (!matrix_) return;
  pending_indices_.wait(device);
  pending_values_.wait(device);
  fill(device, matrix_->gradient(), 0.0f);
  for (int rank = 0; rank < communicator_.size(); ++rank)
    add_rows(device, matrix_->gradient(), all_indices_.view().slice(rank * rows_, rows_),
             all_values_.view().slice(rank * rows_, rows_));
}

double RowSparseExchange::sum_of_squares(Device& device) {
  const double others = others_->sum_of_squares(device);
  return matrix_ ? others + filigree::sum_of_squares(device, matrix_->gradient()) : others;
}

void RowSparseExchange::update(Device& device, std::span<const ParameterUpdate> updates) {
  std::vector<ParameterUpdate> others;
  for (const ParameterUpdate& update : updates) {
    if (update.parameter == matrix_)
      adamw(device, update.args);
    else
      others.push_back(update);
  }
  others_->update(device, others);
}

}  // namespace filigree
