// The data of an evaluation task: JSON lines in a folder, a tar archive or a single file.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/tar_reader.h"

namespace filigree {

// The .jsonl files, also compressed ones, at `path`: below a folder, in a tar archive (.tar, .tar.gz, .tar.xz,
// .tar.zst), or the one file that it is. Sorted by name; names as messages say them. Other files are passed over.
// Throws UserError where the path is missing, damaged, or holds no such file. `also`: another ending that the one file
// may have, e.g. ".txt"; "" for none.
std::vector<NamedFile> read_task_files(const std::filesystem::path& path, std::string_view also = "");

// Calls `use` for the object of each line that is not blank; `where`, e.g. "blimp/a.jsonl line 7", is for messages.
// Throws UserError where a line is no JSON object.
void for_each_json_line(const NamedFile& file,
                        const std::function<void(const nlohmann::json& object, const std::string& where)>& use);

// The text under `key`. Throws UserError where there is none; `expected` says what the task needs.
std::string text_field(const nlohmann::json& object, const std::string& key, const std::string& where,
                       const std::string& expected);

}  // namespace filigree
