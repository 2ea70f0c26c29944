// Ranks as processes that mpirun starts: they train, and when one of them is lost all stop with one message.
#include <sys/ptrace.h>

#include <algorithm>
#include <csignal>
#include <future>
#include <thread>

#include "run_program.h"
#include "train/checkpoint.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::Ended;
using testing::read_all;
using testing::Started;

class Ranks : public ::testing::Test {
 protected:
  Ranks() {
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    std::ofstream text(path("text.txt"));
    for (int i = 0; i < 300; ++i) text << "In year " << i % 37 << " the river waits for rain.\n";
    std::ofstream(path("tiny.toml"))
        << "[model]\narch = \"gpt2\"\nlayers = 1\nwidth = 16\nheads = 2\ncontext = 16\n"
           "[data]\ntrain = \"text.txt\"\ntokenizer = \"bytes\"\n"
           "[train]\nsteps = 6\nbatch_tokens = 128\nmicro_batch = 1\nlr = 3e-3\n"
           "[weights]\nmethod = \"slope\"\n"
           "[run]\ndeterministic = true\ndevice = \"cpu\"\nthreads = 1\n[log]\nevery = 0\n";
  }
  fs::path path(const std::string& name) const { return folder_.path() / name; }

  std::vector<std::string> arguments(int ranks, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"--oversubscribe", "-np",      std::to_string(ranks),
                                    FILIGREE_BINARY,   "train",    path("tiny.toml"),
                                    "--out",           path("run")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ended train(int ranks, const std::vector<std::string>& more = {}) const {
    return Started(MPIEXEC, arguments(ranks, more), folder_.path()).wait();
  }

  // A run that goes on without end, once it has a checkpoint.
  std::unique_ptr<Started> endless(int ranks) const {
    auto started = std::make_unique<Started>(
        MPIEXEC,
        arguments(ranks,
                  {"--set", "train.steps=1000000", "--set", "checkpoint.every=20", "--set", "distributed.timeout=3"}),
        folder_.path());
    for (int tries = 0; tries < 600 && !newest_checkpoint(path("run")); ++tries) std::this_thread::sleep_for(50ms);
    return started;
  }
  // The process that is this rank of the run.
  pid_t process_of(int rank) const {
    const std::string variable = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + '\0';
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (read_all(entry.path() / "cmdline").find(path("run").string()) != std::string::npos &&
          read_all(entry.path() / "environ").find(variable) != std::string::npos)
        return std::stoi(name);
    }
    return -1;
  }
  static int count(const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }
  // Nobody is left, the last checkpoint is whole, and fewer ranks go on from it.
  void expect_resumable(int ranks) const {
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(process_of(rank), -1) << rank;
    const auto newest = newest_checkpoint(path("run"));
    ASSERT_TRUE(newest.has_value());
    const std::int64_t step = CheckpointReader(*newest).state().step;
    const Ended ended = train(ranks / 2, {"--resume", "--set", "train.steps=" + std::to_string(step + 3)});
    EXPECT_EQ(ended.code, 0) << ended.err;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Ranks, TrainAndGoOnInOtherNumbers) {
  ASSERT_EQ(train(4).code, 0);
  EXPECT_EQ(count(read_all(path("run/metrics.jsonl")), "\"bytes_sent\""), 6);
  const Ended ended = train(2, {"--resume", "--set", "train.steps=8"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(count(read_all(path("run/metrics.jsonl")), "\n"), 8);
}

// Over MPI: the sums are taken otherwise than without.
TEST_F(Ranks, ShareTheOptimizersStateAndGoOnInOtherNumbers) {
  const std::vector<std::string> shared = {"--set", "distributed.zero=1", "--set", "run.precision=bf16"};
  ASSERT_EQ(train(4, shared).code, 0);
  std::vector<std::string> more = shared;
  more.insert(more.end(), {"--resume", "--set", "train.steps=8"});
  Ended ended = train(2, more);
  EXPECT_EQ(ended.code, 0) << ended.err;
  more.insert(more.end(), {"--set", "train.steps=10", "--set", "distributed.zero=0"});
  ended = train(1, more);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(count(read_all(path("run/metrics.jsonl")), "\n"), 10);
}

TEST_F(Ranks, SayAMistakeOnce) {
  Ended ended = train(2, {"--set", "train.batch_tokens=144"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(count(ended.err, "which 2 ranks cannot share"), 1) << ended.err;
  ended = train(2, {"--set", "train.lr=-1"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(count(ended.err, "train.lr: found"), 1) << ended.err;
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(Ranks, ThatDifferStopWithTheDifference) {
  std::vector<std::string> all = arguments(1, {"--set", "train.lr=1e-3", ":"});
  for (const std::string& argument : arguments(1, {})) all.push_back(argument);
  all.erase(std::find(all.begin() + 1, all.end(), "--oversubscribe"));
  const Ended ended = Started(MPIEXEC, all, folder_.path()).wait();
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_EQ(count(ended.err, "\n  train.lr: 0.001 on rank 0, 0.003 here"), 1) << ended.err;
}

TEST_F(Ranks, ThatDivergeStopWithOneMessage) {
  // So many ranks that some end long before others: whoever says why must not be cut short.
  for (int repetition = 0; repetition < 4; ++repetition) {
    fs::remove_all(path("run"));
    const Ended ended = train(8, {"--set", "train.lr=1e30", "--set", "train.clip=0", "--set", "train.schedule=constant",
                                  "--set", "checkpoint.every=1"});
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(count(ended.err, "the run has diverged"), 1) << ended.err;
    EXPECT_TRUE(newest_checkpoint(path("run")).has_value());
  }
}

class LostRank : public Ranks, public ::testing::WithParamInterface<std::pair<int, int>> {};

TEST_P(LostRank, ThatHangsStopsAll) {
  const auto [ranks, victim] = GetParam();
  const auto started = endless(ranks);
  const pid_t process = process_of(victim);
  ASSERT_GT(process, 0);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(process, SIGSTOP);
  const Ended ended = started->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);  // 3 s, and what mpirun takes, on a busy machine
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(count(ended.err, "rank " + std::to_string(victim) + " has not answered for 3 s"), 1) << ended.err;
  EXPECT_EQ(count(ended.err, "filigree: "), 1) << ended.err;
  expect_resumable(ranks);
}

// mpirun itself ends the others, and says which was killed, by what.
TEST_P(LostRank, ThatIsKilledStopsAll) {
  const auto [ranks, victim] = GetParam();
  const auto started = endless(ranks);
  const pid_t process = process_of(victim);
  ASSERT_GT(process, 0);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(process, SIGKILL);
  const Ended ended = started->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_NE(ended.code, 0);
  EXPECT_EQ(count(ended.err, "process rank " + std::to_string(victim)), 1) << ended.err;
  expect_resumable(ranks);
}

// Holds the main thread of another process, from its construction to that process' end. The process' other threads run
// on.
class HeldThread {
 public:
  explicit HeldThread(pid_t process)
      : thread_([this, process] {
          // All requests have to come from one thread; and the process' parent learns of its end only after us.
          const bool held = ::ptrace(PTRACE_SEIZE, process, nullptr, nullptr) == 0 &&
                            ::ptrace(PTRACE_INTERRUPT, process, nullptr, nullptr) == 0;
          held_.set_value(held);
          for (int status = 0;
               held && ::waitpid(process, &status, __WALL) == process && !WIFEXITED(status) && !WIFSIGNALED(status);) {
          }
        }) {}
  ~HeldThread() { thread_.join(); }
  bool held() { return held_.get_future().get(); }

 private:
  std::promise<bool> held_;
  std::thread thread_;
};

// The thread that carries the words lives on, and says how far the other one is.
TEST_P(LostRank, WhoseMainThreadHangsStopsAll) {
  const auto [ranks, victim] = GetParam();
  const auto started = endless(ranks);
  const pid_t process = process_of(victim);
  ASSERT_GT(process, 0);
  const auto begin = std::chrono::steady_clock::now();
  HeldThread thread(process);
  if (!thread.held()) {
    ::kill(process, SIGKILL);
    started->wait();
    GTEST_SKIP() << "threads of other processes may not be held here (ptrace)";
  }
  const Ended ended = started->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s);  // and 5 s in which the thread may notice
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(count(ended.err, "rank " + std::to_string(victim) + " hangs: the others have waited for it for 3 s"), 1)
      << ended.err;
  EXPECT_EQ(count(ended.err, "filigree: "), 1) << ended.err;
  expect_resumable(ranks);
}

INSTANTIATE_TEST_SUITE_P(Some, LostRank, ::testing::Values(std::pair{2, 0}, std::pair{2, 1}, std::pair{4, 2}));

}  // namespace
}  // namespace filigree
