// Runs the built program as a user would.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support.h"

namespace filigree::testing {

struct Ended {
  int code = -1;    // exit code, or -signal
  std::string out;  // standard output
  std::string err;  // standard error
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// A program that was started and goes on.
class Started {
 public:
  Started(const std::vector<std::string>& arguments, const std::filesystem::path& folder)
      : Started(FILIGREE_BINARY, arguments, folder) {}
  // Another program, by its path.
  Started(const std::string& program, const std::vector<std::string>& arguments, const std::filesystem::path& folder) {
    out_ = folder_.path() / "out";
    err_ = folder_.path() / "err";
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int out = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const int err = ::open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      ::dup2(out, 1);
      ::dup2(err, 2);
      if (::chdir(folder.c_str()) == 0) ::execv(program.c_str(), argv.data());
      _exit(127);
    }
  }
  pid_t pid() const { return pid_; }
  Ended wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_all(out_), read_all(err_)};
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
};

inline Ended run_program(const std::vector<std::string>& arguments, const std::filesystem::path& folder) {
  return Started(arguments, folder).wait();
}

}  // namespace filigree::testing
