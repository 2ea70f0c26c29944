#include "generate_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "eval/generate.h"
#include "option_checks.h"
#include "text/utf8.h"
#include "train/model_loading.h"

namespace filigree {
namespace {

struct Options {
  std::string path;
  std::string prompt;
  std::int64_t tokens = 100;
  SamplingOptions sampling;
  std::vector<std::string> overrides;
  std::string device = "auto";
};

void run(const Options& options) {
  check_sampling(options.sampling);
  const auto device = Device::named(options.device);
  const LoadedModel loaded = load_model(*device, options.path, options.overrides);
  require_user(loaded.tokenizer != nullptr, options.path + ": this model has no tokenizer, so it cannot read a prompt");
  const Tokenizer& tokenizer = *loaded.tokenizer;
  // A document's beginning is what follows an end-of-text.
  std::vector<std::int32_t> prompt = {tokenizer.end_of_text()};
  for (const std::int32_t id : tokenizer.encode(options.prompt)) prompt.push_back(id);

  PlanTable plans(!loaded.config.run.deterministic);
  if (static_cast<std::int64_t>(prompt.size()) >= kPromptPiece) loaded.model->plan(*device, plans, kPromptPiece);
  Generator generator(*device, *loaded.model, tokenizer.vocab_size());
  std::printf("%s", options.prompt.c_str());
  // Pieces depend on their neighbours: decode everything so far and print what is new and complete.
  std::vector<std::int32_t> made;
  std::size_t printed = 0;
  const auto start = std::chrono::steady_clock::now();
  generator.generate(prompt, options.tokens, options.sampling, [&](std::int32_t id) {
    if (id == tokenizer.end_of_text() || interrupt_requested()) return true;
    made.push_back(id);
    const std::string text = tokenizer.decode(made);
    const std::size_t end = utf8_complete_length(text);
    if (end > printed) {
      std::fwrite(text.data() + printed, 1, end - printed, stdout);
      std::fflush(stdout);
      printed = end;
    }
    return false;
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("\n");
  std::fflush(stdout);
  std::fprintf(stderr, "%zu tokens, %.1f tokens/s\n", made.size(), static_cast<double>(made.size()) / seconds);
  if (interrupt_requested()) throw Interrupted("interrupted");
}

}  // namespace

void add_generate_command(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("generate", "continues a text");
  command->add_option("model", options->path, "a run, or one of its checkpoints")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  command->add_option("--prompt", options->prompt, "the text to continue; \"\" starts a new document")
      ->required()
      ->type_name("TEXT");
  command->add_option("--tokens", options->tokens, "at most this many tokens; fewer where the model ends the document")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--temperature", options->sampling.temperature, "0: always the most likely token")
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "choose among the k most likely; 0: all")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "choose among the most likely that together have this probability")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "equal seeds give equal text")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--device", options->device, "auto, cpu, cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_option("--set", options->overrides, "overrides a key of the model's configuration")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->footer(
      "Example:\n  filigree generate runs/quickstart-slope --prompt \"In the beginning\" --tokens 80 --seed 1\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
