// Ranks as processes of this machine, which meet at a port of it.
#include "comm/tcp_control.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "comm/agreement.h"

namespace filigree {
namespace {

using namespace std::chrono_literals;

int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(descriptor, reinterpret_cast<sockaddr*>(&any), sizeof any);
  socklen_t length = sizeof any;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&any), &length);
  ::close(descriptor);
  return ntohs(any.sin_port);
}

Launch launch_of(int rank, int size, int port) {
  Launch launch;
  launch.way = Launch::Way::address;
  launch.rank = rank;
  launch.size = size;
  launch.host = "localhost";
  launch.port = port;
  return launch;
}

// Runs body(control) on `size` processes; returns how they ended. Exit codes are those of the program, 9 that of a
// failed expectation.
std::vector<int> run_ranks(
    int size, std::chrono::duration<double> timeout, const std::function<bool(Control&)>& body,
    const std::function<std::string(int rank)>& version = [](int) { return "1"; }) {
  const int port = free_port();
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    int code = 0;
    try {
      const auto control = make_tcp_control(launch_of(rank, size, port), timeout, version(rank));
      code = body(*control) ? 0 : 9;
    } catch (const std::exception& error) {
      code = exit_code(error);
    }
    ::_exit(code);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return codes;
}

TEST(TcpControl, GathersTextsOfAnyLength) {
  const auto body = [](Control& control) {
    bool good = true;
    for (const std::size_t length : {0u, 5u, 3000000u}) {
      const auto text = [&](int rank) { return std::string(length, static_cast<char>('a' + rank)); };
      const std::vector<std::string> all = control.all_gather(text(control.rank()));
      good = good && all.size() == 3 && all[0] == text(0) && all[1] == text(1) && all[2] == text(2);
    }
    return good;
  };
  EXPECT_EQ(run_ranks(3, 20s, body), (std::vector<int>{0, 0, 0}));
}

TEST(TcpControl, OtherVersionsDoNotMeet) {
  const auto never = [](Control&) { return false; };
  EXPECT_EQ(run_ranks(2, 20s, never, [](int rank) { return rank == 0 ? "1" : "2"; }), (std::vector<int>{2, 2}));
}

// Its thread that carries the words lives on.
TEST(TcpControl, ARankWhoseMainThreadHangsStopsAll) {
  for (const int victim : {0, 2}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto body = [&](Control& control) {
      control.progress();
      control.all_gather("");
      if (control.rank() == victim) std::this_thread::sleep_for(60s);
      control.all_gather("");
      return false;
    };
    EXPECT_EQ(run_ranks(3, 1s, body), (std::vector<int>{1, 1, 1})) << victim;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  }
}

TEST(TcpControl, ARankThatWorksForLongIsWaitedFor) {
  const auto body = [&](Control& control) {
    control.progress();
    control.all_gather("");
    for (int i = 0; i < 30 && control.rank() == 1; ++i) {
      std::this_thread::sleep_for(100ms);
      control.progress();
    }
    control.all_gather("");
    return true;
  };
  EXPECT_EQ(run_ranks(3, 1s, body), (std::vector<int>{0, 0, 0}));
}

TEST(TcpControl, ARankThatDiesStopsTheOthersAtOnce) {
  for (const int victim : {0, 2}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto body = [&](Control& control) {
      control.all_gather("");
      if (control.rank() == victim) ::kill(::getpid(), SIGKILL);
      control.all_gather("");
      return false;
    };
    std::vector<int> expected(3, 1);
    expected[static_cast<std::size_t>(victim)] = -SIGKILL;
    EXPECT_EQ(run_ranks(3, 100s, body), expected);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  }
}

TEST(TcpControl, ARankThatGivesUpStopsTheOthers) {
  const auto body = [](Control& control) {
    control.all_gather("");
    if (control.rank() == 1) {
      control.give_up();
      return true;
    }
    control.all_gather("");
    return false;
  };
  EXPECT_EQ(run_ranks(3, 100s, body), (std::vector<int>{1, 0, 1}));
}

TEST(TcpControl, ARankThatHangsIsNoticed) {
  const auto body = [](Control& control) {
    control.all_gather("");
    if (control.rank() == 1) {
      // Another process wakes it up again, to end.
      const pid_t self = ::getpid();
      if (::fork() == 0) {
        ::sleep(4);
        ::kill(self, SIGKILL);
        ::_exit(0);
      }
      ::kill(self, SIGSTOP);
    }
    control.all_gather("");
    return false;
  };
  EXPECT_EQ(run_ranks(3, 1s, body), (std::vector<int>{1, -SIGKILL, 1}));
}

TEST(TcpControl, NobodyThereIsSaid) {
  try {
    make_tcp_control(launch_of(1, 2, free_port()), 1s, "1");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("within distributed.timeout: Connection refused"), std::string::npos)
        << error.what();
  }
  try {
    make_tcp_control(launch_of(0, 2, free_port()), 1s, "1");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("1 of 2 ranks have not come"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace filigree
