#include "hub_commands.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "core/error.h"
#include "option_checks.h"
#include "train/hub_export.h"
#include "train/hub_import.h"

namespace filigree {
namespace {

struct ImportOptions {
  HubImportOptions import;
  std::string precision;
};

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) std::fprintf(stderr, "warning: %s\n", note.c_str());
}

void run_import(ImportOptions options) {
  if (!options.precision.empty()) options.import.precision = options.precision == "bf16" ? DType::bf16 : DType::f32;
  const HubImported done = import_hub_folder(options.import);
  print_notes(done.notes);
  std::printf("%s: %s, %lld parameters, context %lld, %s, tokenizer %s\n", options.import.out.c_str(),
              done.hub.type.c_str(), static_cast<long long>(done.parameters),
              static_cast<long long>(done.hub.model.context), std::string(name_of(done.precision)).c_str(),
              done.tokenizer.empty() ? "none" : done.tokenizer.c_str());
}

struct ExportOptions {
  HubExportOptions export_;
  std::string shard = "5GB";
  std::string adapters = "merged";
};

// "500MB", in powers of ten as everywhere among these folders, or plain bytes.
std::int64_t bytes_of(const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double factor = unit == "GB" ? 1e9 : unit == "MB" ? 1e6 : unit == "KB" ? 1e3 : unit.empty() ? 1.0 : 0.0;
  const double bytes = number * factor;
  require_user(error == std::errc() && std::isfinite(bytes) && bytes >= 1.0 && bytes <= 1e15,
               "--max-shard-size: found " + text + ", expected a size such as 5GB, 500MB or 100KB");
  return std::llround(bytes);
}

void run_export(ExportOptions options) {
  options.export_.shard_bytes = bytes_of(options.shard);
  options.export_.adapters = options.adapters == "peft" ? HubAdapters::peft : HubAdapters::merged;
  const HubExported done = export_hub_folder(options.export_);
  print_notes(done.notes);
  std::printf("%s: %s in %s, %zu file%s of weights%s, from %s\n", options.export_.out.c_str(), done.type.c_str(),
              std::string(name_of(done.dtype)).c_str(), done.files, done.files == 1 ? "" : "s",
              !done.adapters                                    ? ""
              : options.export_.adapters == HubAdapters::merged ? ", adapters merged"
                                                                : ", adapters in adapter/",
              done.checkpoint.c_str());
}

}  // namespace

void add_import_command(CLI::App& program) {
  const auto options = std::make_shared<ImportOptions>();
  CLI::App* command = program.add_subcommand("import", "makes a checkpoint from a Hugging Face folder");
  command
      ->add_option("folder", options->import.from,
                   "config.json, safetensors and tokenizer of a GPT-2, OPT, LLaMA or Mistral")
      ->required()
      ->type_name("FOLDER");
  command->add_option("--out", options->import.out, "the checkpoint's folder, which is made")
      ->required()
      ->type_name("CHECKPOINT");
  command
      ->add_option("--context", options->import.context,
                   "tokens of a sequence, fewer than the model has positions; 0: all")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--precision", options->precision, "fp32 or bf16; left out: bf16 where the weights are, else fp32")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  command->footer(
      "The checkpoint serves eval, generate, inspect, export, and model.init of a configuration.\n\n"
      "Example:\n  filigree import models/gpt2 --out models/gpt2-filigree\n");
  command->callback([options] { run_import(*options); });
}

void add_export_command(CLI::App& program) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* command = program.add_subcommand("export", "makes a Hugging Face folder from a run or a checkpoint");
  command->add_option("model", options->export_.from, "a run, or one of its checkpoints")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  command->add_option("--out", options->export_.out, "the folder, which is made")->required()->type_name("FOLDER");
  command
      ->add_option("--max-shard-size", options->shard,
                   "most bytes of a file of weights: 5GB, 500MB; a tensor is not cut")
      ->capture_default_str()
      ->type_name("SIZE");
  command->add_option("--adapters", options->adapters, "merged into the weights, or beside them in the form of PEFT")
      ->capture_default_str()
      ->check(CLI::IsMember({"merged", "peft"}));
  command->footer(
      "Sparse layers are written as dense ones with zeros.\n\n"
      "Example:\n  filigree export runs/quickstart-slope --out models/slope-hf\n");
  command->callback([options] { run_export(*options); });
}

}  // namespace filigree
