// What an exchange of gradients keeps from step to step, in a checkpoint: exchange.safetensors. Arrays that differ from
// rank to rank have the shape (ranks, count).
#pragma once

#include <filesystem>
#include <optional>

#include "comm/gradient_exchange.h"
#include "io/safetensors.h"

namespace filigree {

inline constexpr const char* kExchangeFile = "exchange.safetensors";

// Called by all ranks; the first writes the file into `folder`, which the others do not need. No file where there is
// nothing to keep.
void save_exchange(const GradientExchange& exchange, Communicator& communicator, Device& device,
                   const std::filesystem::path& folder);

class ExchangeReader final : public ExchangeSource {
 public:
  // A checkpoint's folder; without the file it has no arrays.
  ExchangeReader(const std::filesystem::path& checkpoint, const Communicator& communicator);

  bool has(const std::string& name) const override;
  void load_shared(Device& device, const std::string& name, const Tensor& out) const override;
  void load_per_rank(Device& device, const std::string& name, const Tensor& out) const override;

 private:
  const Communicator& communicator_;
  std::filesystem::path path_;
  std::optional<SafetensorsFile> file_;
};

}  // namespace filigree
