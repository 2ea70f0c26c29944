// Ranks as processes of this machine, which meet at a port of it.
#include "comm/tcp_control.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <iterator>
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

// The first has a report to write when the others are done: it is not alone for that.
TEST(TcpControl, TheFirstMayEndLongAfterTheOthers) {
  const auto body = [](Control& control) {
    control.all_gather("");
    // A second to be noticed, five until a process that does not notice is ended, and one more.
    if (control.rank() == 0) std::this_thread::sleep_for(7s);
    return true;
  };
  EXPECT_EQ(run_ranks(3, 1s, body), (std::vector<int>{0, 0, 0}));
}

// From here on this process has no IPv6, as on a system that was started without it. False where that cannot be had.
bool forget_ipv6() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),  // the lower half, on little-endian machines
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {.len = std::size(program), .filter = program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) return false;
  return ::socket(AF_INET6, SOCK_STREAM, 0) < 0;
}

TEST(TcpControl, RanksMeetWithoutIpv6) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!forget_ipv6()) ::_exit(77);
    const auto body = [](Control& control) { return control.all_gather("x").size() == 2; };
    ::_exit(run_ranks(2, 20s, body) == std::vector<int>{0, 0} ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "system calls cannot be refused here (seccomp)";
  EXPECT_EQ(status, 0);
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
