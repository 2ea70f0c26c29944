#include "prepare_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "data/prepare.h"

namespace filigree {
namespace {

void print_split(const char* name, const SplitInfo& split) {
  std::printf("%-6s %lld tokens, %lld bytes of text, %lld document%s, %lld file%s\n", name,
              static_cast<long long>(split.tokens), static_cast<long long>(split.bytes),
              static_cast<long long>(split.documents), split.documents == 1 ? "" : "s",
              static_cast<long long>(split.shards), split.shards == 1 ? "" : "s");
}

void run(PrepareOptions options) {
  options.progress = stderr;
  options.stop = interrupt_requested;
  const DataInfo info = prepare(options);
  std::printf("%s: tokenizer %s, %lld entries, %.2f bytes a token\n", options.out.c_str(), info.tokenizer.c_str(),
              static_cast<long long>(info.vocab),
              static_cast<double>(info.train.bytes + info.val.bytes) /
                  static_cast<double>(info.train.tokens + info.val.tokens));
  print_split("train", info.train);
  print_split("val", info.val);
  if (info.val.tokens > 0)
    std::printf("a model that knows nothing but how often each token occurs has a validation loss of %.3f\n",
                info.val_unigram_entropy);
}

}  // namespace

void add_prepare_command(CLI::App& app) {
  const auto options = std::make_shared<PrepareOptions>();
  CLI::App* const command = app.add_subcommand("prepare", "turns text into token files for training");
  command->add_option("--text", options->text, "text files or folders: .txt, .jsonl, each also .gz, .xz, .zst")
      ->required()
      ->type_name("PATH");
  command
      ->add_option(
          "--tokenizer", options->tokenizer,
          "bytes, spm:VOCAB_SIZE to train one, or a file or folder: tokenizer.json, vocab.json with merges.txt, "
          "tiktoken ranks (cl100k_base.tiktoken), a SentencePiece model")
      ->required()
      ->type_name("bytes|spm:VOCAB_SIZE|FILE|FOLDER");
  command->add_option("--out", options->out, "the folder to create")->required()->type_name("DIR");
  CLI::Option* const share =
      command->add_option("--val-fraction", options->val_fraction, "share of the text held out for validation")
          ->type_name("F")
          ->capture_default_str();
  command->add_option("--val-text", options->val_text, "validation text of its own, instead of a share")
      ->type_name("PATH")
      ->excludes(share);
  command->footer(
      "In .txt a line <|endoftext|> ends a document, in .jsonl each line's \"text\" is one.\n\n"
      "Example:\n  filigree prepare --text books/ notes.txt.xz --tokenizer spm:4096 --out data/books\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
