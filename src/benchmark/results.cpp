#include "benchmark/results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "kernels/library_versions.h"
#include "version.h"

namespace filigree {
namespace {

using Json = nlohmann::ordered_json;

Better direction(const std::string& metric) {
  if (metric.ends_with("_bytes") || metric.ends_with("bytes_sent")) return Better::quotient;
  return metric.ends_with("_ms") || metric.ends_with("_s_per_step") || metric == "first_step_s" ? Better::smaller
                                                                                                : Better::larger;
}

Json config_json(const ResultConfig& config) {
  Json json = {{"batch", config.batch},         {"sequence", config.sequence}, {"layers", config.layers},
               {"precision", config.precision}, {"ranks", config.ranks},       {"seed", config.seed}};
  if (config.vocab > 0) json["vocab"] = config.vocab;
  if (config.threads > 0) json["threads"] = config.threads;
  return json;
}

// The order of keys says nothing.
bool equal(const Json& a, const Json& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

// A peer's scripts write rows of the same form: where the file has them, our dense rows stand beside them.
constexpr const char* kPeer = "pytorch";

double ratio_of(const std::string& metric, double value, double baseline) {
  const double quotient = value / baseline;
  return direction(metric) == Better::smaller ? 1.0 / quotient : quotient;
}

void compare_with_peer(Json& rows) {
  for (Json& row : rows) {
    // "dense", and "dense-recompute-norm" and the like.
    const std::string method = row.at("method").get<std::string>();
    if (method != "dense" && !method.starts_with("dense-")) continue;
    for (const Json& peer : rows)
      if (peer.at("method") == kPeer && peer.at("case") == row.at("case") &&
          equal(peer.at("config"), row.at("config")) && peer.at("metric") == row.at("metric")) {
        row["baseline"] = kPeer;
        row["ratio"] = ratio_of(row.at("metric"), row.at("median"), peer.at("median"));
      }
  }
}

bool same_row(const Json& a, const Json& b) {
  for (const char* key : {"case", "method", "config", "metric"})
    if (!equal(a.at(key), b.at(key))) return false;
  return true;
}

bool is_row(const Json& json) {
  if (!json.is_object()) return false;
  for (const char* key : {"case", "method", "metric"})
    if (!json.contains(key) || !json.at(key).is_string()) return false;
  return json.contains("config") && json.at("config").is_object() && json.contains("median") &&
         json.at("median").is_number();
}

// The rows of a file, none where there is no file yet.
Json read_rows(const std::filesystem::path& file) {
  constexpr std::uint64_t kLimit = std::uint64_t{256} << 20;
  if (!std::filesystem::exists(file)) return Json::array();
  const Json old = Json::parse(read_file(file, kLimit), nullptr, false);
  require_user(old.is_object() && old.contains("rows") && old.at("rows").is_array(),
               file.string() + ": exists, but is no file of benchmark results; choose another name");
  const Json& rows = old.at("rows");
  for (std::size_t i = 0; i < rows.size(); ++i)
    require_user(is_row(rows[i]),
                 fmt::format("{}: row {} lacks a case, method, config, metric or median; mend or remove it",
                             file.string(), i + 1));
  return rows;
}

}  // namespace

void compare_with(std::vector<ResultRow>& rows, const std::string& baseline) {
  for (ResultRow& row : rows) {
    if (row.method == baseline) continue;
    for (const ResultRow& twin : rows) {
      if (twin.method != baseline || twin.name != row.name || twin.metric != row.metric ||
          config_json(twin.config) != config_json(row.config))
        continue;
      row.baseline = baseline;
      row.ratio = ratio_of(row.metric, row.measured.median, twin.measured.median);
    }
  }
}

ResultContext result_context(const Device& device, const std::vector<std::string>& command) {
  const int driver = device.gpu().driver;
  return {.device = device.description(),
          .command = fmt::format("{}", fmt::join(command, " ")),
          .driver = device.is_cuda() ? fmt::format("for CUDA {}.{}", driver / 1000, driver % 1000 / 10) : "",
          .libraries = library_versions(device)};
}

int config_threads(const Device& device) {
  return device.is_cuda() ? 0 : device.threads();
}

std::optional<double> read_result(const std::filesystem::path& file, const ResultKey& key) {
  require_user(std::filesystem::exists(file), file.string() + ": there is no such results file");
  std::optional<double> found;
  for (const Json& row : read_rows(file))
    if (row.at("case") == key.name && row.at("method") == key.method && row.at("metric") == key.metric &&
        row.at("config").value("precision", "") == key.precision)
      found = row.at("median").get<double>();
  return found;
}

void check_results_file(const std::filesystem::path& file) {
  if (file.empty()) return;
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  require_user(std::filesystem::is_directory(folder),
               file.string() + ": cannot be written, for there is no folder " + folder.string());
  require_user(::access(folder.c_str(), W_OK | X_OK) == 0,
               file.string() + ": cannot be written, for the folder " + folder.string() + " is closed to this user");
  read_rows(file);
}

void write_results(const std::filesystem::path& file, const ResultContext& context,
                   const std::vector<ResultRow>& rows) {
  check_results_file(file);
  Json libraries = Json::object();
  for (const auto& [library, version] : context.libraries) libraries[library] = version;
  Json document = {{"device", context.device}, {"driver", context.driver},   {"libraries", libraries},
                   {"commit", build::kCommit}, {"command", context.command}, {"rows", read_rows(file)}};
  for (const ResultRow& row : rows) {
    Json json = {{"case", row.name},
                 {"method", row.method},
                 {"config", config_json(row.config)},
                 {"metric", row.metric},
                 {"median", row.measured.median},
                 {"min", row.measured.min},
                 {"max", row.measured.max},
                 {"baseline", row.baseline},
                 {"ratio", row.baseline.empty() ? Json(nullptr) : Json(row.ratio)},
                 {"device", context.device},
                 {"libraries", libraries},
                 {"commit", build::kCommit},
                 {"command", context.command}};
    bool replaced = false;
    for (Json& old : document["rows"])
      if (same_row(json, old)) {
        old = json;
        replaced = true;
        break;
      }
    if (!replaced) document["rows"].push_back(std::move(json));
  }
  compare_with_peer(document["rows"]);
  write_file_atomically(file, document.dump(1) + "\n");
}

std::string results_table(const std::vector<ResultRow>& rows) {
  std::string text = fmt::format("{:<22} {:<10} {:<6} {:<20} {:>12} {:>12} {:>12}  {}\n", "case", "method", "type",
                                 "metric", "median", "min", "max", "against its baseline");
  for (const ResultRow& row : rows)
    text += fmt::format("{:<22} {:<10} {:<6} {:<20} {:>12.3f} {:>12.3f} {:>12.3f}  {}\n", row.name, row.method,
                        row.config.precision, row.metric, row.measured.median, row.measured.min, row.measured.max,
                        row.baseline.empty() ? "" : fmt::format("{:.3f} x {}", row.ratio, row.baseline));
  return text;
}

}  // namespace filigree
