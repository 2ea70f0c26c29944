// Tiny resolved models for tests of the whole network.
#pragma once

#include <string>

#include "io/config.h"
#include "model/transformer.h"
#include "support.h"

namespace filigree::testing {

inline Config tiny_config(const std::string& arch, DType precision = DType::f32) {
  Config config;
  config.run.precision = precision;
  config.model = {.preset = "",
                  .arch = arch,
                  .layers = 2,
                  .width = 32,
                  .heads = 4,
                  .kv_heads = arch == "llama" ? 2 : 4,
                  .ffn = arch == "llama" ? 48 : 64,
                  .vocab = 61,
                  .context = 16,
                  .tied = arch != "llama",
                  .init = ""};
  return config;
}

// Token ids below `vocab`, and each token's successor as its target.
struct TinyBatch {
  OwnedTensor tokens, targets;  // (B, S) int32
  TinyBatch(Device& device, std::int64_t batch, std::int64_t sequence, std::int64_t vocab, std::uint32_t stream = 1)
      : tokens(device.memory().tensor(Purpose::data, DType::i32, {batch, sequence})),
        targets(device.memory().tensor(Purpose::data, DType::i32, {batch, sequence})) {
    const Random random(3, RandomPurpose::test, stream);
    auto* id = tokens.view().as<std::int32_t>();
    auto* next = targets.view().as<std::int32_t>();
    for (std::int64_t i = 0; i < batch * sequence; ++i) {
      id[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(vocab)));
      next[i] =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i + 1), static_cast<std::uint32_t>(vocab)));
    }
  }
  std::int64_t count() const { return tokens.view().count(); }
};

}  // namespace filigree::testing
