// Benchmark results as rows of JSON: what every published figure is quoted from.
//
// A file is one object with `device`, `driver`, `libraries`, `commit`, `command` and `rows`. Writing into a file
// replaces the rows of equal case, method, config and metric and keeps the others, so that a file grows over several
// runs; each row therefore carries its own device, libraries, commit and command. What the key leaves out must not
// change a figure: settings of a method are part of its name (named_method.h), the others of the config.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"

namespace filigree {

struct Measured {
  double median = 0.0, min = 0.0, max = 0.0;
};

struct ResultConfig {
  std::int64_t batch = 1;  // sequences, or rows of a product
  std::int64_t sequence = 1;
  std::int64_t layers = 1;
  std::string precision = {};  // "fp32", "bf16"
  std::int64_t ranks = 1;
  std::uint64_t seed = 1;
  std::int64_t vocab = 0;  // entries; 0: there is no vocabulary
  int threads = 0;         // of a processor; 0 on a GPU
};
// A processor's threads, 0 on a GPU.
int config_threads(const Device& device);

enum class Better : std::uint8_t { smaller, larger, quotient };  // quotient: value / baseline as it is (bytes)

struct ResultRow {
  std::string name;    // "gpt2-124m", "matmul-768x3072"
  std::string method;  // "dense", "slope", ...
  ResultConfig config;
  std::string metric;  // "step_ms", "tokens_per_s", ...
  Measured measured;
  std::string baseline;  // the method that it stands beside; "" for none
  double ratio = 0.0;    // above 1 is better than the baseline; 0 without one
};

// Sets baseline and ratio of every row of another method than `baseline` that has a twin of that method.
void compare_with(std::vector<ResultRow>& rows, const std::string& baseline);

struct ResultContext {
  std::string device;                                               // Device::description()
  std::string command;                                              // the command line
  std::string driver = {};                                          // of a GPU
  std::vector<std::pair<std::string, std::string>> libraries = {};  // name and version
};
ResultContext result_context(const Device& device, const std::vector<std::string>& command);

// The median of a row of a results file: the newest that has all of this. Nothing where there is none; throws UserError
// where the file is missing or is no results file.
struct ResultKey {
  std::string name, method, metric, precision;
};
std::optional<double> read_result(const std::filesystem::path& file, const ResultKey& key);

// Throws UserError when write_results could not write there: the file exists and is no results file, or its folder is
// missing or closed. To be called before the measurement; "" stands for no file and passes.
void check_results_file(const std::filesystem::path& file);
// Checks the same; written to a temporary name and renamed.
void write_results(const std::filesystem::path& file, const ResultContext& context, const std::vector<ResultRow>& rows);

// The rows as a table for people.
std::string results_table(const std::vector<ResultRow>& rows);

}  // namespace filigree
