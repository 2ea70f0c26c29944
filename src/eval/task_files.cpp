#include "eval/task_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestFile = std::size_t{1} << 30;
constexpr std::size_t kPieceBytes = 1 << 16;

std::string inner_extension(const fs::path& path) {
  return (compression_of(path) == Compression::none ? path : path.stem()).extension().string();
}
bool is_json_lines(const fs::path& path) {
  return inner_extension(path) == ".jsonl";
}

std::string read_all(const fs::path& path) {
  const auto source = open_byte_source(path);
  std::string bytes;
  for (std::size_t got = 1; got > 0;) {
    const std::size_t begin = bytes.size();
    bytes.resize(begin + kPieceBytes);
    got = source->read(bytes.data() + begin, kPieceBytes);
    bytes.resize(begin + got);
    require_user(bytes.size() <= kLargestFile, path.string() + ": this file is longer than 1 GiB");
  }
  return bytes;
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  try {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && is_json_lines(entry.path())) files.push_back(entry.path());
  } catch (const fs::filesystem_error& failure) {
    throw UserError(failure.path1().string() + ": cannot read this folder: " + failure.code().message());
  }
  return files;
}

}  // namespace

std::vector<NamedFile> read_task_files(const fs::path& path, std::string_view also) {
  std::vector<NamedFile> files;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    for (const fs::path& file : files_below(path)) files.push_back({file.string(), read_all(file)});
    require_user(!files.empty(), path.string() + ": this folder holds no .jsonl file, plain or as .gz, .xz or .zst");
  } else if (is_tar_name(path)) {
    TarReader archive(path);
    for (NamedFile file; archive.next(file);)
      if (fs::path(file.name).extension() == ".jsonl")
        files.push_back({path.string() + ": " + file.name, std::move(file.bytes)});
    require_user(!files.empty(), path.string() + ": this archive holds no .jsonl file");
  } else {
    require_user(!fs::exists(path, error) || is_json_lines(path) || (!also.empty() && inner_extension(path) == also),
                 path.string() +
                     ": expected a folder, a tar archive (.tar, .tar.gz, .tar.xz, .tar.zst) or a .jsonl "
                     "file" +
                     (also.empty() ? "" : " (or " + std::string(also) + ")"));
    files.push_back({path.string(), read_all(path)});
  }
  std::sort(files.begin(), files.end(), [](const NamedFile& a, const NamedFile& b) { return a.name < b.name; });
  return files;
}

void for_each_json_line(const NamedFile& file,
                        const std::function<void(const nlohmann::json& object, const std::string& where)>& use) {
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < file.bytes.size();) {
    const std::size_t end = std::min(file.bytes.find('\n', begin), file.bytes.size());
    const std::string_view line = std::string_view(file.bytes).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = file.name + " line " + std::to_string(number);
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    require_user(!object.is_discarded(), where + ": this line is not valid JSON in UTF-8; one object a line is needed");
    require_user(object.is_object(), where + ": a JSON object is needed, this is " + object.type_name());
    use(object, where);
  }
}

std::string text_field(const nlohmann::json& object, const std::string& key, const std::string& where,
                       const std::string& expected) {
  const auto found = object.find(key);
  require_user(found != object.end() && found->is_string(),
               where + ": it has no text under \"" + key + "\"; " + expected);
  return found->get<std::string>();
}

}  // namespace filigree
