// Checkpoints: a folder that appears complete or not at all.
//
//   checkpoints/step-NNNNNNNN/
//     model.safetensors       values in the run's precision, masks; enough to evaluate, generate, export
//     optimizer.safetensors   masters, moments, and whatever else an exact resume needs
//     exchange.safetensors    what an exchange of gradients keeps (exchange_state.h); only where it keeps something
//     state.json              format version, step, phase, kernel choices, which data, checksums of the other files
//     config.toml             the run's resolved configuration
//     tokenizer.model         the tokenizer, when the run has one
//
// Equal runs give equal bytes: no times, no host names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "data/dataset.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "kernels/matmul/matmul_choices.h"
#include "model/transformer.h"

namespace filigree {

struct CheckpointState {
  std::int64_t step = 0;     // optimizer steps done
  bool dense_phase = false;  // the sparse phase has not begun
  bool adapters = false;
  std::int64_t sparse_start = 0;   // the steps at which the phases began or will begin: train.steps may change on a
  std::int64_t adapter_start = 0;  // resume, the past may not
  std::int64_t skipped = 0;        // steps in a row without an update, up to this one
  int threads = 0;                 // sums may depend on the thread count
  std::map<std::string, std::string> backends;  // of each planned product: a PlanEntry's text
  MatmulChoices dense_products;                 // algorithms on a GPU
  std::string tokenizer;                        // identity, "" when the run has none
  std::string imported = "";                    // model_type of the Hugging Face folder that it was made from, or ""
  std::map<std::string, DataFingerprint> data;  // of "train" and "val"; empty in checkpoints from before it was written
};

std::filesystem::path checkpoint_path(const std::filesystem::path& run, std::int64_t step);
// The newest complete checkpoint of a run.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run);
// Removes what killed processes left of checkpoints that they were writing. Only for who holds the run's lock.
void remove_unfinished_checkpoints(const std::filesystem::path& run);
// Removes the oldest checkpoints of a run beyond the `keep` newest; 0 keeps all.
void remove_old_checkpoints(const std::filesystem::path& run, std::int64_t keep);

// Writes a checkpoint: declare every array, write each, finish. Until then all lies in a temporary folder, which is
// flushed and renamed; without finish(), or where it throws Error (a full disk), nothing remains.
class CheckpointWriter {
 public:
  using File = CheckpointSink::File;
  explicit CheckpointWriter(const std::filesystem::path& folder);

  void declare(File file, const std::string& name, DType dtype, const Shape& shape);
  void write(File file, const std::string& name, const Tensor& host);
  // Where further files may be put.
  const std::filesystem::path& folder() const { return target_.temporary(); }
  // `tokenizer` is its serialized form; "" when there is none.
  void finish(const CheckpointState& state, const std::string& config_toml, const std::string& tokenizer);

 private:
  SafetensorsWriter& writer(File file) { return file == File::model ? *model_ : *optimizer_; }

  AtomicFolder target_;
  std::unique_ptr<SafetensorsWriter> model_, optimizer_;
};

// A model's checkpoint, and what its writer may want done meanwhile.
struct CheckpointHooks {
  std::function<void(const std::filesystem::path&)> more = {};  // writes further safetensors files into this folder
  std::function<void()> progress = {};                          // called after each array
};
void write_checkpoint(const std::filesystem::path& folder, Device& device, const Transformer& model,
                      const CheckpointState& state, const std::string& config_toml, const std::string& tokenizer,
                      const CheckpointHooks& hooks = {});

// What the ranks that write none do at the same time, before hooks.more: where the optimizer's state is sharded, a
// checkpoint holds all of it, one array after the other.
void give_to_checkpoint(Device& device, const Transformer& model);

// A checkpoint opened for reading: its state is parsed and its files' lengths and checksums verified. Throws UserError
// naming the file when something is missing, damaged or of another format version.
class CheckpointReader final : public CheckpointSource {
 public:
  explicit CheckpointReader(const std::filesystem::path& folder);

  const CheckpointState& state() const { return state_; }
  // Its choices of kernels. Throws UserError at one that this version does not know.
  std::map<std::string, PlanEntry> plans() const;
  const std::filesystem::path& folder() const { return folder_; }

  bool has(CheckpointSink::File file, const std::string& name) const override;
  void load(CheckpointSink::File file, const std::string& name, const Tensor& out) const override;

 private:
  std::filesystem::path folder_;
  CheckpointState state_;
  std::unique_ptr<SafetensorsFile> model_, optimizer_;
};

}  // namespace filigree
