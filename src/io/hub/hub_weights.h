// The weights of a Hugging Face folder: model.safetensors, or the files that model.safetensors.index.json names.
// Nothing is copied before it is asked for, and then one array at a time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/hub/hub_names.h"
#include "io/safetensors.h"

namespace filigree {

inline constexpr const char* kHubConfigFile = "config.json";
inline constexpr const char* kHubWeightsFile = "model.safetensors";
inline constexpr const char* kHubIndexFile = "model.safetensors.index.json";

// Whether a folder looks like a model of Hugging Face's.
bool is_hub_folder(const std::filesystem::path& folder);
// Its config.json. context: see parse_hub_config.
HubModel read_hub_config(const std::filesystem::path& folder, std::int64_t context = 0);

// Tensor names to file names, as the index says. Throws UserError where it is no index, or names a file outside of its
// folder. `file` stands in messages.
std::map<std::string, std::string> parse_hub_index(std::string_view text, const std::string& file);

class HubWeights {
 public:
  // Opens the files and compares them with the model: every tensor must be there in its shape and as fp32, bf16 or
  // fp16, and nothing else may be, but for buffers that hold nothing learnt. A tied head's own tensor must equal the
  // embedding. Throws UserError naming what is not so.
  HubWeights(const std::filesystem::path& folder, HubModel model);

  const HubModel& model() const { return model_; }
  const std::vector<HubArray>& arrays() const { return arrays_; }
  const HubArray* find(std::string_view name) const;  // ours
  // bf16 where all matrices are stored so, else fp32, which holds every value of fp16.
  DType precision() const;

  // One of our arrays, (rows, columns) or (rows), into fp32 or bf16.
  void load(const HubArray& array, const Tensor& out) const;

 private:
  using Files = std::vector<std::unique_ptr<SafetensorsFile>>;
  void open();
  void open_indexed(const std::filesystem::path& index);
  void use_short_names();
  void check_tensors() const;
  void check_tied_head() const;
  void load_transposed(const HubPart& part, const Tensor& out) const;
  const SafetensorsFile* holder(const std::string& tensor) const;

  std::filesystem::path folder_;
  HubModel model_;
  std::vector<HubArray> arrays_;
  Files files_;
  std::map<std::string, const SafetensorsFile*, std::less<>> holders_;  // by their name
};

}  // namespace filigree
