#include "train/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "io/checksum.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using File = CheckpointSink::File;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr std::uint64_t kStateLimit = std::uint64_t{64} << 20;
constexpr const char* kFiles[] = {"model.safetensors", "optimizer.safetensors"};

// First pass of writing: what there will be.
class Declare final : public CheckpointSink {
 public:
  explicit Declare(CheckpointWriter& writer) : writer_(writer) {}
  void put(File file, const std::string& name, const Tensor& tensor) override {
    writer_.declare(file, name, tensor.dtype, tensor.shape);
  }
  void put_state(const Parameter& parameter, const std::string& name, const Tensor& state) override {
    writer_.declare(File::optimizer, name, state.dtype, parameter.options().shape);
  }

 private:
  CheckpointWriter& writer_;
};

// Second pass: the bytes, from a GPU by way of host memory.
class Write final : public CheckpointSink {
 public:
  Write(Device& device, CheckpointWriter& writer, const std::function<void()>& progress)
      : device_(device), writer_(writer), progress_(progress) {}
  void put(File file, const std::string& name, const Tensor& tensor) override {
    Tensor host = tensor;
    if (device_.is_cuda()) {
      staged_.resize(tensor.bytes());
      host.data = staged_.data();
      device_.copy_to_host(host.data, tensor);
    }
    writer_.write(file, name, host);
    if (progress_) progress_();
  }
  void put_state(const Parameter& parameter, const std::string& name, const Tensor& state) override {
    put(File::optimizer, name, parameter.whole(device_, state));
  }

 private:
  Device& device_;
  CheckpointWriter& writer_;
  const std::function<void()>& progress_;
  std::vector<std::byte> staged_;
};

// What the other ranks do meanwhile: give their parts.
class Give final : public CheckpointSink {
 public:
  explicit Give(Device& device) : device_(device) {}
  void put(File, const std::string&, const Tensor&) override {}
  void put_state(const Parameter& parameter, const std::string&, const Tensor& state) override {
    parameter.whole(device_, state);
  }

 private:
  Device& device_;
};

struct Seal {
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;
};

Seal seal_of(const fs::path& file) {
  const MappedFile mapped(file);
  return {mapped.bytes().size(), crc32c(mapped.bytes().data(), mapped.bytes().size())};
}

// All arrays of a checkpoint, in the order of their names.
std::vector<std::string> sealed_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    const auto rank = [](const std::string& name) { return std::find(std::begin(kFiles), std::end(kFiles), name); };
    return rank(a) != rank(b) ? rank(a) < rank(b) : a < b;
  });
  return names;
}

std::string state_json(const CheckpointState& state, const fs::path& folder) {
  Json files;
  for (const std::string& name : sealed_files(folder)) {
    const Seal seal = seal_of(folder / name);
    files[name] = {{"bytes", seal.bytes}, {"crc32c", seal.checksum}};
  }
  Json data = Json::object();
  for (const auto& [split, print] : state.data) data[split] = {{"tokens", print.tokens}, {"crc32c", print.checksum}};
  Json json = {{"format", kFormat},
               {"step", state.step},
               {"dense_phase", state.dense_phase},
               {"adapters", state.adapters},
               {"sparse_start", state.sparse_start},
               {"adapter_start", state.adapter_start},
               {"skipped", state.skipped},
               {"threads", state.threads},
               {"tokenizer", state.tokenizer},
               {"backends", state.backends},
               {"dense_products",
                {{"made_by", state.dense_products.made_by}, {"algorithms", Json(state.dense_products.entries)}}},
               {"data", data},
               {"files", files}};
  if (!state.imported.empty()) json["imported"] = state.imported;
  return json.dump(2) + "\n";
}

std::vector<fs::path> checkpoints_of(const fs::path& run) {
  std::vector<fs::path> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", missing)) {
    const std::string name = entry.path().filename().string();
    const bool digits = name.size() >= 13 && std::all_of(name.begin() + 5, name.end(),
                                                         [](unsigned char letter) { return std::isdigit(letter); });
    if (entry.is_directory() && name.starts_with("step-") && digits) found.push_back(entry.path());
  }
  // By length first: steps beyond eight digits are newer than all that have eight.
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    const std::string x = a.filename().string(), y = b.filename().string();
    return x.size() != y.size() ? x.size() < y.size() : x < y;
  });
  return found;
}

}  // namespace

fs::path checkpoint_path(const fs::path& run, std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return run / "checkpoints" / name;
}

std::optional<fs::path> newest_checkpoint(const fs::path& run) {
  const std::vector<fs::path> all = checkpoints_of(run);
  if (all.empty()) return std::nullopt;
  return all.back();
}

void remove_unfinished_checkpoints(const fs::path& run) {
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", missing))
    if (entry.path().extension() == ".tmp") fs::remove_all(entry.path());
}

void remove_old_checkpoints(const fs::path& run, std::int64_t keep) {
  const std::vector<fs::path> all = checkpoints_of(run);
  if (keep <= 0 || static_cast<std::int64_t>(all.size()) <= keep) return;
  for (auto old = all.begin(); old != all.end() - keep; ++old) fs::remove_all(*old);
}

CheckpointWriter::CheckpointWriter(const fs::path& folder)
    : target_(folder),
      model_(std::make_unique<SafetensorsWriter>(target_.temporary() / kFiles[0])),
      optimizer_(std::make_unique<SafetensorsWriter>(target_.temporary() / kFiles[1])) {}

void CheckpointWriter::declare(File file, const std::string& name, DType dtype, const Shape& shape) {
  writer(file).declare(name, dtype, shape);
}

void CheckpointWriter::write(File file, const std::string& name, const Tensor& host) {
  writer(file).write(name, host);
}

void CheckpointWriter::finish(const CheckpointState& state, const std::string& config_toml,
                              const std::string& tokenizer) {
  model_->finish();
  optimizer_->finish();
  write_file_atomically(folder() / "config.toml", config_toml);
  if (!tokenizer.empty()) write_file_atomically(folder() / "tokenizer.model", tokenizer);
  write_file_atomically(folder() / "state.json", state_json(state, folder()));
  target_.commit();
}

void write_checkpoint(const fs::path& folder, Device& device, const Transformer& model, const CheckpointState& state,
                      const std::string& config_toml, const std::string& tokenizer, const CheckpointHooks& hooks) {
  fs::create_directories(folder.parent_path());
  CheckpointWriter writer(folder);
  Declare declare(writer);
  model.save(declare);
  Write write(device, writer, hooks.progress);
  model.save(write);
  if (hooks.more) hooks.more(writer.folder());
  writer.finish(state, config_toml, tokenizer);
}

void give_to_checkpoint(Device& device, const Transformer& model) {
  Give give(device);
  model.save(give);
}

CheckpointReader::CheckpointReader(const fs::path& folder) : folder_(folder) {
  const fs::path state_file = folder / "state.json";
  const std::string text = read_file(state_file, kStateLimit);
  const auto damaged = [&](const fs::path& file, const std::string& what) {
    return UserError(file.string() + ": " + what + "; resume from another checkpoint, or remove this one");
  };
  try {
    const Json json = Json::parse(text);
    if (json.at("format").get<int>() != kFormat)
      throw damaged(state_file, "format version " + std::to_string(json.at("format").get<int>()) +
                                    ", but this program reads version " + std::to_string(kFormat));
    state_.step = json.at("step").get<std::int64_t>();
    state_.dense_phase = json.at("dense_phase").get<bool>();
    state_.adapters = json.at("adapters").get<bool>();
    state_.sparse_start = json.at("sparse_start").get<std::int64_t>();
    state_.adapter_start = json.at("adapter_start").get<std::int64_t>();
    state_.skipped = json.value("skipped", std::int64_t{0});
    state_.threads = json.at("threads").get<int>();
    state_.tokenizer = json.at("tokenizer").get<std::string>();
    state_.backends = json.at("backends").get<std::map<std::string, std::string>>();
    if (json.contains("dense_products")) {  // not in checkpoints of the first versions
      const Json& products = json.at("dense_products");
      state_.dense_products = {.made_by = products.at("made_by").get<std::string>(),
                               .entries = products.at("algorithms").get<std::map<std::string, std::string>>()};
    }
    state_.imported = json.value("imported", std::string());
    if (json.contains("data"))
      for (const auto& [split, print] : json.at("data").items())
        state_.data[split] = {print.at("tokens").get<std::int64_t>(), print.at("crc32c").get<std::uint32_t>()};
    for (const char* name : kFiles) json.at("files").at(name);
    for (const auto& [name, expected] : json.at("files").items()) {
      if (!fs::exists(folder / name)) throw damaged(folder / name, "missing");
      const Seal seal = seal_of(folder / name);
      if (seal.bytes != expected.at("bytes").get<std::uint64_t>())
        throw damaged(folder / name, std::to_string(seal.bytes) + " bytes, but its state says " +
                                         std::to_string(expected.at("bytes").get<std::uint64_t>()));
      if (seal.checksum != expected.at("crc32c").get<std::uint32_t>())
        throw damaged(folder / name, "its checksum is wrong");
    }
  } catch (const nlohmann::json::exception& error) {
    throw damaged(state_file, std::string("not a checkpoint's state (") + error.what() + ")");
  }
  model_ = std::make_unique<SafetensorsFile>(folder / kFiles[0]);
  optimizer_ = std::make_unique<SafetensorsFile>(folder / kFiles[1]);
}

std::map<std::string, PlanEntry> CheckpointReader::plans() const {
  std::map<std::string, PlanEntry> entries;
  for (const auto& [key, backend] : state_.backends) {
    const std::optional<PlanEntry> entry = plan_entry_of(backend);
    require_user(entry.has_value(), (folder_ / "state.json").string() + ": there is no back end called " + backend);
    entries[key] = *entry;
  }
  return entries;
}

bool CheckpointReader::has(File file, const std::string& name) const {
  return (file == File::model ? *model_ : *optimizer_).find(name) != nullptr;
}

void CheckpointReader::load(File file, const std::string& name, const Tensor& out) const {
  (file == File::model ? *model_ : *optimizer_).load(name, out);
}

}  // namespace filigree
