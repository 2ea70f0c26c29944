#include "data/prepare.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/parallel.h"
#include "core/progress.h"
#include "data/split.h"
#include "io/atomic_file.h"
#include "io/shards/token_shards.h"
#include "text/tokenizer.h"

namespace filigree {
namespace {

constexpr std::int64_t kTokenizerSample = 64 << 20;  // bytes of text a tokenizer is trained on: more changes little
constexpr std::int64_t kBatchBytes = 8 << 20;        // of text encoded at once: enough pieces for every core

// The files of one split, a new one whenever the last is full; and what is counted on the way.
class SplitWriter {
 public:
  SplitWriter(std::filesystem::path folder, std::string name, std::int64_t vocab, std::int64_t shard_tokens)
      : folder_(std::move(folder)), name_(std::move(name)), vocab_(vocab), shard_tokens_(shard_tokens) {}

  void append(std::span<const std::int32_t> ids) {
    while (!ids.empty()) {
      if (!shard_) shard_ = std::make_unique<TokenShardWriter>(folder_ / shard_name(name_, info.shards++), vocab_);
      const auto room = static_cast<std::size_t>(shard_tokens_ - shard_->tokens());
      const auto part = ids.first(std::min(ids.size(), room));
      shard_->append(part);
      info.tokens += static_cast<std::int64_t>(part.size());
      ids = ids.subspan(part.size());
      if (shard_->tokens() == shard_tokens_) finish();
    }
  }
  void finish() {
    if (shard_) shard_->finish();
    shard_.reset();
  }

  SplitInfo info;

 private:
  std::filesystem::path folder_;
  std::string name_;
  std::int64_t vocab_, shard_tokens_;
  std::unique_ptr<TokenShardWriter> shard_;
};

class Preparation {
 public:
  explicit Preparation(const PrepareOptions& options) : options_(options) { check_options(); }

  DataInfo run() {
    spec_ = parse_tokenizer_spec(options_.tokenizer);
    std::unique_ptr<Tokenizer> tokenizer;
    if (spec_.kind != TokenizerSpec::Kind::train_sentencepiece) tokenizer = make_tokenizer(spec_, {});
    text_ = find_text(options_.text);
    if (!options_.val_text.empty()) val_text_ = find_text(options_.val_text);
    if (options_.out.has_parent_path()) {
      std::error_code error;
      std::filesystem::create_directories(options_.out.parent_path(), error);
      require_user(!error, options_.out.string() + ": cannot make its parent folder: " + error.message());
    }
    AtomicFolder folder(options_.out);
    measure();
    if (!tokenizer) tokenizer = train();
    tokenizer->save(folder.temporary() / kTokenizerFile);
    DataInfo info = encode(*tokenizer, folder.temporary());
    write_data_info(folder.temporary(), info);
    folder.commit();
    return info;
  }

 private:
  void check_options() const {
    require_user(!options_.text.empty(), "no text is given: name files or folders");
    require_user(options_.val_fraction >= 0.0 && options_.val_fraction <= 0.5,
                 "the validation fraction is " + std::to_string(options_.val_fraction) + "; it must be from 0 to 0.5");
    require(options_.shard_tokens > 0, "the shard size must be positive");
    std::error_code error;
    require_user(options_.out.has_filename(),
                 "out: \"" + options_.out.string() + "\" does not name a folder to create");
    if (std::filesystem::exists(std::filesystem::symlink_status(options_.out, error)))
      throw UserError(options_.out.string() +
                      ": this exists already, and data is never overwritten; name another folder");
  }

  void poll() const {
    if (options_.stop && options_.stop()) throw Interrupted("interrupted; nothing was written");
  }

  void warn(const std::string& text) const {
    if (options_.progress != nullptr) std::fprintf(options_.progress, "warning: %s\n", text.c_str());
  }

  std::int64_t disk_bytes() const { return text_.bytes + (val_text_ ? val_text_->bytes : 0); }

  // First pass: how much text there is, and whether all of it can be read.
  void measure() {
    for (const TextFiles* files : {&text_, val_text_ ? &*val_text_ : nullptr})
      if (files != nullptr && !files->repeated.empty())
        warn(files->repeated.front().string() + " is given more than once; it is used once");
    std::string invalid;  // of the first file that has such bytes
    Progress progress(options_.progress, "reading text", disk_bytes());
    std::int64_t done = 0;
    const auto count = [&](const TextFiles& files) {
      DocumentReader reader(files);
      TextSize size;
      for (TextPiece piece; reader.next(piece); progress.update(done + reader.position())) {
        poll();
        size.bytes += static_cast<std::int64_t>(piece.text.size());
        if (piece.ends_document) ++size.documents;
      }
      done += files.bytes;
      if (invalid.empty()) invalid = reader.invalid_note();
      return size;
    };
    size_ = count(text_);
    if (val_text_) val_size_ = count(*val_text_);
    const std::int64_t documents = size_.documents + val_size_.documents;
    progress.finish(std::to_string(documents) + (documents == 1 ? " document, " : " documents, ") +
                    std::to_string(size_.bytes + val_size_.bytes) + " bytes");
    if (!invalid.empty()) warn(invalid);
  }

  SplitReader reader() const {
    return SplitReader(text_, val_text_, SplitRule(size_, val_text_ ? 0.0 : options_.val_fraction));
  }

  // The lines of the training split, or an even sample of them, are what a tokenizer learns from.
  std::unique_ptr<Tokenizer> train() const {
    Progress progress(options_.progress, "training the tokenizer", 0);
    SplitReader text = reader();
    SplitPiece part;
    std::size_t at = 0;
    std::uint64_t line_number = 0;
    const Random random(1, RandomPurpose::sampling);
    const double share =
        static_cast<double>(kTokenizerSample) / static_cast<double>(std::max<std::int64_t>(size_.bytes, 1));
    const LineSource lines = [&](std::string& line) {
      do {
        while (at >= part.piece.text.size()) {
          poll();
          at = 0;
          part.piece.text.clear();
          if (!text.next(part)) return false;
          if (part.split == Split::val) part.piece.text.clear();
        }
        const std::size_t end = std::min(part.piece.text.find('\n', at), part.piece.text.size());
        line.assign(part.piece.text, at, end - at);
        at = end + 1;
      } while (share < 1.0 && static_cast<double>(random.uniform(line_number++)) >= share);
      return true;
    };
    std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(spec_, lines);
    progress.finish(tokenizer->name());
    return tokenizer;
  }

  // Second pass. What is written does not depend on the thread count: pieces are encoded one by one.
  DataInfo encode(const Tokenizer& tokenizer, const std::filesystem::path& folder) const {
    Progress progress(options_.progress, "encoding", disk_bytes());
    SplitReader text = reader();
    SplitWriter train(folder, "train", tokenizer.vocab_size(), options_.shard_tokens);
    SplitWriter val(folder, "val", tokenizer.vocab_size(), options_.shard_tokens);
    std::vector<std::int64_t> val_counts(static_cast<std::size_t>(tokenizer.vocab_size()));
    std::vector<SplitPiece> batch;
    for (bool more = true; more;) {
      batch.clear();
      for (std::int64_t bytes = 0; more && bytes < kBatchBytes;) {
        poll();
        SplitPiece part;
        more = text.next(part);
        if (!more) break;
        bytes += static_cast<std::int64_t>(part.piece.text.size()) + 64;
        batch.push_back(std::move(part));
      }
      const std::vector<std::vector<std::int32_t>> encoded = encode_all(tokenizer, batch);
      for (std::size_t i = 0; i < batch.size(); ++i) {
        SplitWriter& writer = batch[i].split == Split::val ? val : train;
        writer.append(encoded[i]);
        writer.info.documents += batch[i].begins_document ? 1 : 0;
        writer.info.bytes += static_cast<std::int64_t>(batch[i].piece.text.size());
        if (batch[i].split == Split::val)
          for (const std::int32_t id : encoded[i]) ++val_counts[static_cast<std::size_t>(id)];
      }
      progress.update(text.position());
    }
    train.finish();
    val.finish();
    if (train.info.bytes + val.info.bytes != size_.bytes + val_size_.bytes)
      throw Error("the text has changed while it was read: run this again");
    progress.finish(std::to_string(train.info.tokens) + " training and " + std::to_string(val.info.tokens) +
                    " validation tokens");
    return describe(tokenizer, train.info, val.info, val_counts);
  }

  // Ids of each piece, with end-of-text where a document ends.
  static std::vector<std::vector<std::int32_t>> encode_all(const Tokenizer& tokenizer,
                                                           const std::vector<SplitPiece>& pieces) {
    std::vector<std::vector<std::int32_t>> encoded(pieces.size());
    std::vector<std::exception_ptr> failures(pieces.size());  // parallel bodies must not throw
    parallel_for(static_cast<std::int64_t>(pieces.size()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        try {
          encoded[i] = tokenizer.encode(pieces[i].piece.text);
          if (pieces[i].piece.ends_document) encoded[i].push_back(tokenizer.end_of_text());
        } catch (...) {
          failures[i] = std::current_exception();
        }
      }
    });
    for (const std::exception_ptr& failure : failures)
      if (failure) std::rethrow_exception(failure);
    return encoded;
  }

  DataInfo describe(const Tokenizer& tokenizer, const SplitInfo& train, const SplitInfo& val,
                    const std::vector<std::int64_t>& val_counts) const {
    DataInfo info;
    info.tokenizer = tokenizer.identity();
    info.vocab = tokenizer.vocab_size();
    info.train = train;
    info.val = val;
    for (const std::int64_t count : val_counts) {
      if (count == 0) continue;
      const double p = static_cast<double>(count) / static_cast<double>(val.tokens);
      info.val_unigram_entropy -= p * std::log(p);
    }
    info.tokenizer_spec = options_.tokenizer;
    info.val_fraction = options_.val_fraction;
    for (const std::filesystem::path& path : options_.text) info.sources.push_back(path.string());
    for (const std::filesystem::path& path : options_.val_text) info.val_sources.push_back(path.string());
    info.source_bytes = disk_bytes();
    return info;
  }

  const PrepareOptions& options_;
  TokenizerSpec spec_;
  TextFiles text_;
  std::optional<TextFiles> val_text_;
  TextSize size_, val_size_;
};

}  // namespace

DataInfo prepare(const PrepareOptions& options) {
  return Preparation(options).run();
}

}  // namespace filigree
