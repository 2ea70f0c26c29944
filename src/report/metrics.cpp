#include "report/metrics.h"

#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "io/atomic_file.h"

namespace filigree {
namespace {

using nlohmann::json;

void append_number(std::string& line, double value) {
  if (!std::isfinite(value)) {
    line += "null";
    return;
  }
  if (value == 0.0 && std::signbit(value)) {
    line += "-0.0";  // "-0" is an integer to a JSON parser and would lose its sign
    return;
  }
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  line.append(text.data(), end);
}

// Builds one line; refuses a key twice, because a reader would see only one of the two.
class LineBuilder {
 public:
  void integer(std::string_view name, std::int64_t value) {
    key(name);
    line_ += std::to_string(value);
  }
  void number(std::string_view name, double value) {
    key(name);
    append_number(line_, value);
  }
  void text(std::string_view name, const std::string& value) {
    key(name);
    line_ += json(value).dump(-1, ' ', false, json::error_handler_t::replace);
  }
  std::string finish() && { return std::move(line_) + "}\n"; }

 private:
  void key(std::string_view name) {
    const std::string quoted = json(name).dump() + ":";
    // A key follows '{' or ','; a string value never directly follows either, so a match is a key.
    require(line_.find("{" + quoted) == std::string::npos && line_.find("," + quoted) == std::string::npos,
            "metrics line has the key " + quoted + " twice");
    line_ += (line_.empty() ? "{" : ",") + quoted;
  }

  std::string line_;
};

double number_or_nan(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// The whole lines of a file, one after the other. A line without a newline is none: its writer was stopped inside it.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& file) : file_(file), stream_(file, std::ios::binary) {
    require(stream_.good() || !std::filesystem::exists(file), "cannot read " + file.string());
  }

  bool next() {
    begin_ = end_;
    if (!std::getline(stream_, line_) || stream_.eof()) return false;
    end_ += line_.size() + 1;
    ++number_;
    return true;
  }
  std::uintmax_t begin() const { return begin_; }  // of the line, in bytes; after the last one the end of the lines

  // Calls body(object) with the line's object; false where it is none, or body finds a value of another kind.
  template <typename Body>
  bool parse(Body&& body) const {
    try {
      const json object = json::parse(line_);
      if (object.is_object()) body(object);
      return object.is_object();
    } catch (const json::exception&) {
      return false;
    }
  }
  UserError damaged() const {
    return UserError(file_.string() + ":" + std::to_string(number_) +
                     ": this line is damaged (no JSON object of the expected form); remove it");
  }

 private:
  std::filesystem::path file_;
  std::ifstream stream_;
  std::string line_;
  std::uintmax_t begin_ = 0, end_ = 0;
  std::int64_t number_ = 0;
};

template <typename Body>
void for_each_line(const std::filesystem::path& file, Body&& body) {
  LineReader lines(file);
  while (lines.next())
    if (!lines.parse(body)) throw lines.damaged();
}

void cut(const std::filesystem::path& file, std::uintmax_t length) {
  std::error_code error;
  if (std::filesystem::file_size(file, error) != length && !error) std::filesystem::resize_file(file, length, error);
  require(!error, "cannot truncate " + file.string() + ": " + error.message());
}

// Length of the file up to and with its last newline, read backwards in blocks.
std::uintmax_t whole_lines_length(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  require(stream.good(), "cannot read " + file.string());
  auto end = static_cast<std::uintmax_t>(stream.tellg());
  std::string block;
  while (end > 0) {
    block.resize(std::min<std::uintmax_t>(end, 4096));
    const std::uintmax_t begin = end - block.size();
    stream.seekg(static_cast<std::streamoff>(begin));
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    require(stream.good(), "cannot read " + file.string());
    if (const auto newline = block.rfind('\n'); newline != std::string::npos) return begin + newline + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

std::optional<double> find_value(const NamedValues& values, std::string_view name) {
  for (const auto& [key, value] : values)
    if (key == name) return value;
  return std::nullopt;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& file) : file_(file) {
  if (std::filesystem::exists(file)) cut(file, whole_lines_length(file));
  stream_.open(file, std::ios::binary | std::ios::app);
  require(stream_.good(), "cannot open " + file.string() + " for writing");
}

void MetricsWriter::append(const StepMetrics& metrics) {
  LineBuilder line;
  line.integer("step", metrics.step);
  line.integer("tokens", metrics.tokens);
  line.number("loss", metrics.loss);
  line.number("lr", metrics.lr);
  line.number("grad_norm", metrics.grad_norm);
  line.number("step_ms", metrics.step_ms);
  line.number("tokens_per_s", metrics.tokens_per_s);
  for (const auto& [name, value] : metrics.exchange) line.number(name, value);
  write(std::move(line).finish());
}

void MetricsWriter::append(const EvalMetrics& metrics) {
  LineBuilder line;
  line.integer("step", metrics.step);
  line.text("task", metrics.task);
  for (const auto& [name, value] : metrics.values) line.number(name, value);
  write(std::move(line).finish());
}

void MetricsWriter::write(std::string line) {
  stream_.write(line.data(), static_cast<std::streamsize>(line.size()));
  stream_.flush();
  require(stream_.good(), "cannot write to " + file_.string() + "; is the disk full?");
}

void MetricsWriter::flush_to_disk() {
  filigree::flush_to_disk(file_);
}

std::vector<StepMetrics> read_step_metrics(const std::filesystem::path& file) {
  std::vector<StepMetrics> lines;
  for_each_line(file, [&](const json& object) {
    StepMetrics& metrics = lines.emplace_back();
    for (const auto& [name, value] : object.items()) {
      if (name == "step") {
        metrics.step = value.get<std::int64_t>();
      } else if (name == "tokens") {
        metrics.tokens = value.get<std::int64_t>();
      } else if (name == "loss") {
        metrics.loss = number_or_nan(value);
      } else if (name == "lr") {
        metrics.lr = number_or_nan(value);
      } else if (name == "grad_norm") {
        metrics.grad_norm = number_or_nan(value);
      } else if (name == "step_ms") {
        metrics.step_ms = number_or_nan(value);
      } else if (name == "tokens_per_s") {
        metrics.tokens_per_s = number_or_nan(value);
      } else if (value.is_number()) {
        metrics.exchange.emplace_back(name, value.get<double>());
      }
    }
  });
  return lines;
}

std::vector<EvalMetrics> read_eval_metrics(const std::filesystem::path& file) {
  std::vector<EvalMetrics> lines;
  for_each_line(file, [&](const json& object) {
    EvalMetrics& metrics = lines.emplace_back();
    for (const auto& [name, value] : object.items()) {
      if (name == "step") {
        metrics.step = value.get<std::int64_t>();
      } else if (name == "task") {
        metrics.task = value.get<std::string>();
      } else {
        metrics.values.emplace_back(name, number_or_nan(value));
      }
    }
  });
  return lines;
}

void truncate_after(const std::filesystem::path& file, std::int64_t step) {
  if (!std::filesystem::exists(file)) return;
  LineReader lines(file);
  std::int64_t reached = 0;
  while (lines.next()) {
    const bool whole = lines.parse([&](const json& object) { reached = object.at("step").get<std::int64_t>(); });
    if (!whole && reached < step) throw lines.damaged();
    if (!whole || reached > step) break;
  }
  cut(file, lines.begin());
}

}  // namespace filigree
