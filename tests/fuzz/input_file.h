// A file for parsers that take a path; it goes with the object.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace filigree::fuzzing {

class InputFile {
 public:
  InputFile(const std::string& bytes, const std::string& extension)
      : path_(std::filesystem::temp_directory_path() / ("filigree-fuzz-" + std::to_string(getpid()) + extension)) {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  ~InputFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace filigree::fuzzing
