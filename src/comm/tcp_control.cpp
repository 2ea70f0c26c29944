#include "comm/tcp_control.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "comm/vigil.h"
#include "core/error.h"

namespace filigree {
namespace {

using Clock = Vigil::Clock;
using namespace std::chrono_literals;

constexpr std::uint32_t kMagic = 0x66676333;  // "fgc3"
constexpr std::uint32_t kLongestText = 1u << 28;
constexpr auto kBetweenTries = 200ms;
constexpr auto kAfterYou = 500ms;
constexpr int kNap = 10;  // ms

enum class Kind : std::uint32_t { hello, refused, values, alive, lost, given_up, leaving, stuck };

struct Header {
  std::uint32_t magic = kMagic;
  Kind kind = Kind::alive;
  std::uint32_t number = 0;  // hello: the sender's rank; lost, stuck: that one's
  std::uint32_t length = 0;
};

std::string frame(Kind kind, std::uint32_t number, std::string_view text) {
  const Header header{.kind = kind, .number = number, .length = static_cast<std::uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  return bytes.append(text);
}

std::string reason() {
  return std::strerror(errno);
}

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// A connection with what has arrived and what has yet to leave.
struct Peer {
  Socket socket;
  std::string arrived, leaving;
  bool ended = false;

  // False once the other end is gone.
  bool read() {
    char bytes[65536];
    const ssize_t count = ::recv(socket.descriptor(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) arrived.append(bytes, static_cast<std::size_t>(count));
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
  }
  bool write() {
    const ssize_t count = ::send(socket.descriptor(), leaving.data(), leaving.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) leaving.erase(0, static_cast<std::size_t>(count));
    return count >= 0 || errno == EAGAIN || errno == EINTR;
  }
  // The next whole frame, if it has arrived. Throws Error where it is none of ours.
  bool take(Header& header, std::string& text) {
    if (arrived.size() < sizeof header) return false;
    std::memcpy(&header, arrived.data(), sizeof header);
    require(header.magic == kMagic && header.length <= kLongestText, "another program speaks at this port");
    if (arrived.size() < sizeof header + header.length) return false;
    text = arrived.substr(sizeof header, header.length);
    arrived.erase(0, sizeof header + header.length);
    return true;
  }
};

std::string joined(const std::map<std::uint32_t, std::string>& texts) {
  std::string all;
  for (const auto& [rank, text] : texts) {
    const auto length = static_cast<std::uint32_t>(text.size());
    all.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
  }
  return all;
}

std::vector<std::string> parted(const std::string& all) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    texts.push_back(all.substr(at + sizeof length, length));
    at += sizeof length + length;
  }
  return texts;
}

class TcpControl final : public Control {
 public:
  TcpControl(const Launch& launch, std::chrono::duration<double> timeout, const std::string& version)
      : launch_(launch),
        version_(version),
        until_(Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout)),
        peers_(static_cast<std::size_t>(launch.rank == 0 ? launch.size : 1)) {
    if (launch.rank == 0)
      accept_all();
    else
      connect_to_first();
    require(awake_.open(), "the system gives no event descriptor");
    vigil_.emplace(launch.rank, launch.size, timeout);
    thread_ = std::thread([this] { run(); });
  }
  ~TcpControl() override {
    vigil_->notice();
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    wake();
    thread_.join();
  }

  int rank() const override { return launch_.rank; }
  int size() const override { return launch_.size; }

  std::vector<std::string> all_gather(std::string_view text) override {
    vigil_->throw_if_lost();
    vigil_->entered();
    std::unique_lock lock(mutex_);
    mine_ = text;
    asked_ = true;
    wake();
    changed_.wait(lock, [&] { return answered_ || lost_; });
    if (!answered_) {
      lock.unlock();
      vigil_->throw_if_lost();
    }
    answered_ = false;
    return parted(answer_);
  }
  void give_up() noexcept override {
    const std::scoped_lock lock(mutex_);
    giving_up_ = true;
    wake();
  }
  void entered() noexcept override { vigil_->entered(); }
  void progress() noexcept override { vigil_->progress(); }

 private:
  void wake() const {
    const std::uint64_t one = 1;
    // A counter that is full wakes the thread as well.
    [[maybe_unused]] const ssize_t written = ::write(awake_.descriptor(), &one, sizeof one);
  }

  std::string address() const { return launch_.host + ":" + std::to_string(launch_.port); }
  int remaining() const {
    return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(until_ - Clock::now()).count());
  }

  // --- meeting ---

  void accept_all() {
    const auto port = htons(static_cast<std::uint16_t>(launch_.port));
    sockaddr_in6 any_six{};
    any_six.sin6_family = AF_INET6;
    any_six.sin6_port = port;
    sockaddr_in any_four{};
    any_four.sin_family = AF_INET;
    any_four.sin_port = port;
    // IPv6 takes IPv4 as well; where the system was started without it, as on some clusters, that alone.
    Socket listening(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool has_six = listening.open();
    if (!has_six) listening = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1, no = 0;
    ::setsockopt(listening.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (has_six) ::setsockopt(listening.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    const auto* any =
        has_six ? reinterpret_cast<const sockaddr*>(&any_six) : reinterpret_cast<const sockaddr*>(&any_four);
    require_user(::bind(listening.descriptor(), any, has_six ? sizeof any_six : sizeof any_four) == 0 &&
                     ::listen(listening.descriptor(), launch_.size) == 0,
                 "port " + std::to_string(launch_.port) + ", at which the ranks meet, cannot be had: " + reason() +
                     "; FILIGREE_PORT chooses another, on all ranks");
    for (int missing = launch_.size - 1; missing > 0;) {
      pollfd waiting{.fd = listening.descriptor(), .events = POLLIN, .revents = 0};
      require_user(::poll(&waiting, 1, std::max(remaining(), 0)) > 0,
                   std::to_string(missing) + " of " + std::to_string(launch_.size) + " ranks have not come to " +
                       address() + " within distributed.timeout");
      Peer peer;
      peer.socket = Socket(::accept4(listening.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
      if (peer.socket.open() && greet(peer)) --missing;
    }
  }
  // Whether it is one of ours, which has its place then.
  bool greet(Peer& peer) {
    no_delay(peer);
    Header header;
    std::string version;
    if (!receive(peer, header, version, kGreeting) || header.kind != Kind::hello) return false;
    const bool known = header.number > 0 && header.number < peers_.size() && !peers_[header.number].socket.open();
    const std::string refusal = !known ? "rank " + std::to_string(header.number) + " is there already, or is none"
                                : version != version_
                                    ? "rank 0 is filigree " + version_ + ", rank " + std::to_string(header.number) +
                                          " " + version + "; start all ranks with one program"
                                    : "";
    peer.leaving = frame(refusal.empty() ? Kind::hello : Kind::refused, 0, refusal);
    while (!peer.leaving.empty() && peer.write()) {
    }
    require_user(refusal.empty() || !known, refusal);
    if (refusal.empty()) peers_[header.number] = std::move(peer);
    return refusal.empty();
  }

  void connect_to_first() {
    std::string last = "nobody answers";
    for (; remaining() > 0; std::this_thread::sleep_for(kBetweenTries)) {
      Peer peer;
      peer.socket = connected(last);
      if (!peer.socket.open()) continue;
      no_delay(peer);
      peer.leaving = frame(Kind::hello, static_cast<std::uint32_t>(launch_.rank), version_);
      while (!peer.leaving.empty() && peer.write()) {
      }
      Header header;
      std::string text;
      last = "it does not answer as rank 0 of filigree";
      if (!receive(peer, header, text, std::chrono::milliseconds(std::max(remaining(), 1)))) continue;
      require_user(header.kind != Kind::refused, text);
      peers_[0] = std::move(peer);
      return;
    }
    throw UserError("rank 0 cannot be reached at " + address() + " within distributed.timeout: " + last);
  }
  Socket connected(std::string& problem) const {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = ::getaddrinfo(launch_.host.c_str(), std::to_string(launch_.port).c_str(), &hints, &found)) {
      problem = ::gai_strerror(error);
      return {};
    }
    Socket socket;
    for (const addrinfo* each = found; each != nullptr && !socket.open(); each = each->ai_next) {
      Socket candidate(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC, each->ai_protocol));
      if (::connect(candidate.descriptor(), each->ai_addr, each->ai_addrlen) == 0)
        socket = std::move(candidate);
      else
        problem = reason();
    }
    ::freeaddrinfo(found);
    return socket;
  }
  static void no_delay(const Peer& peer) {
    const int yes = 1;
    ::setsockopt(peer.socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  // A frame within `patience`; false where none comes, or something else.
  static bool receive(Peer& peer, Header& header, std::string& text, std::chrono::milliseconds patience) {
    const auto until = Clock::now() + patience;
    try {
      while (!peer.take(header, text)) {
        pollfd waiting{.fd = peer.socket.descriptor(), .events = POLLIN, .revents = 0};
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
        if (::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) <= 0 || !peer.read())
          return false;
      }
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  // --- talking: the thread's part ---

  void run() {
    while (!vigil_->lost() && !left()) {
      begin_what_was_asked();
      if (Clock::now() - last_word_ >= vigil_->interval()) {
        last_word_ = Clock::now();
        const Vigil::Report report = vigil_->own();
        const std::string_view bytes(reinterpret_cast<const char*>(&report), sizeof report);
        for (const int other : vigil_->watched()) send(other, Kind::alive, 0, bytes);
      }
      move_bytes();
      if (const auto overdue = vigil_->overdue()) lose(*overdue, vigil_->silence(*overdue), true);
      if (const auto stuck = rank() == 0 ? vigil_->stuck() : std::nullopt) {
        for (const int other : vigil_->watched()) send(other, Kind::stuck, static_cast<std::uint32_t>(*stuck), "");
        vigil_->lose(vigil_->idleness(*stuck), vigil_->tells_of(*stuck));
      }
    }
    const bool lost = vigil_->lost();
    {
      const std::scoped_lock lock(mutex_);
      lost_ = lost;
      changed_.notify_all();
    }
    for (const auto until = Clock::now() + kAfterYou; Clock::now() < until && anything_leaves();) move_bytes();
    if (!lost) return;
    vigil_->end_unless_noticed();
    if (!vigil_->says_why()) std::this_thread::sleep_for(kAfterYou);
  }

  // This rank has ended, and where it is the first, so have all others.
  bool left() {
    bool ending = false, giving_up = false;
    {
      const std::scoped_lock lock(mutex_);
      ending = ending_;
      giving_up = giving_up_;
    }
    if (giving_up) {
      for (const int other : vigil_->watched()) send(other, Kind::given_up, static_cast<std::uint32_t>(rank()), "");
      return true;
    }
    if (!ending) return false;
    if (!said_leaving_)
      for (const int other : vigil_->watched()) send(other, Kind::leaving, 0, "");
    said_leaving_ = true;
    return std::all_of(vigil_->watched().begin(), vigil_->watched().end(),
                       [&](int other) { return peers_[static_cast<std::size_t>(other)].ended; });
  }

  void begin_what_was_asked() {
    std::string text;
    {
      const std::scoped_lock lock(mutex_);
      if (!asked_) return;
      asked_ = false;
      text = std::move(mine_);
    }
    if (rank() > 0)
      send(0, Kind::values, 0, text);
    else
      collect(0, text);
  }
  void collect(std::uint32_t from, const std::string& text) {
    collected_[from] = text;
    if (collected_.size() < static_cast<std::size_t>(size())) return;
    const std::string all = joined(collected_);
    collected_.clear();
    for (const int other : vigil_->watched()) send(other, Kind::values, 0, all);
    answer(all);
  }
  void answer(const std::string& all) {
    const std::scoped_lock lock(mutex_);
    answer_ = all;
    answered_ = true;
    changed_.notify_all();
  }

  void send(int to, Kind kind, std::uint32_t number, std::string_view text) {
    peers_[static_cast<std::size_t>(to)].leaving += frame(kind, number, text);
  }
  bool anything_leaves() const {
    return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.leaving.empty(); });
  }

  void move_bytes() {
    std::vector<pollfd> waiting;
    for (const int other : vigil_->watched()) {
      const Peer& peer = peers_[static_cast<std::size_t>(other)];
      const auto events = static_cast<short>((peer.ended ? 0 : POLLIN) | (peer.leaving.empty() ? 0 : POLLOUT));
      waiting.push_back({.fd = events == 0 ? -1 : peer.socket.descriptor(), .events = events, .revents = 0});
    }
    waiting.push_back({.fd = awake_.descriptor(), .events = POLLIN, .revents = 0});
    ::poll(waiting.data(), waiting.size(), kNap);
    std::uint64_t calls = 0;
    [[maybe_unused]] const ssize_t read = ::read(awake_.descriptor(), &calls, sizeof calls);
    for (std::size_t i = 0; i + 1 < waiting.size(); ++i) {
      const int other = vigil_->watched()[i];
      Peer& peer = peers_[static_cast<std::size_t>(other)];
      if (peer.ended) {
        // Who has taken leave waits for us to do so, however long a report takes to write.
        vigil_->heard(other);
        if (waiting[i].revents != 0 && !(waiting[i].revents & POLLOUT && peer.write())) peer.leaving.clear();
        continue;
      }
      const bool alive = (!(waiting[i].revents & POLLOUT) || peer.write()) &&
                         (!(waiting[i].revents & (POLLIN | POLLHUP | POLLERR)) || peer.read());
      hear(other, peer);
      if (!alive && !peer.ended) lose(other, ended_text(other), true);
    }
  }
  static std::string ended_text(int rank) {
    return "rank " + std::to_string(rank) +
           " has ended: the run stops on all ranks. Its last checkpoint is as it was; go on with --resume";
  }

  void hear(int other, Peer& peer) {
    Header header;
    std::string text;
    while (peer.take(header, text)) {
      vigil_->heard(other);
      if (Vigil::Report report; header.kind == Kind::alive && text.size() == sizeof report) {
        std::memcpy(&report, text.data(), sizeof report);
        vigil_->heard(other, report);
      } else if (header.kind == Kind::stuck) {
        const auto about = static_cast<int>(header.number);
        vigil_->lose(vigil_->idleness(about), vigil_->tells_of(about));
      } else if (header.kind == Kind::values) {
        if (rank() == 0)
          collect(static_cast<std::uint32_t>(other), text);
        else
          answer(text);
      } else if (header.kind == Kind::lost || header.kind == Kind::given_up) {
        lose(static_cast<int>(header.number), "rank " + std::to_string(header.number) + " has failed", false);
      } else if (header.kind == Kind::leaving) {
        peer.ended = true;
      }
    }
  }

  // `found_here`: by this rank itself, which then may have to say it.
  void lose(int other, const std::string& why, bool found_here) {
    if (rank() == 0)
      for (const int each : vigil_->watched())
        if (each != other) send(each, Kind::lost, static_cast<std::uint32_t>(other), "");
    vigil_->lose(why, found_here && vigil_->tells_of(other));
  }

  static constexpr std::chrono::milliseconds kGreeting{2000};

  const Launch launch_;
  const std::string version_;
  const Clock::time_point until_;
  const Socket awake_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::vector<Peer> peers_;  // by rank; of others than the first only [0]
  std::optional<Vigil> vigil_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false, answered_ = false, ending_ = false, giving_up_ = false, lost_ = false;
  std::string mine_, answer_;

  // The thread's own.
  std::map<std::uint32_t, std::string> collected_;
  Clock::time_point last_word_{};
  bool said_leaving_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Control> make_tcp_control(const Launch& launch, std::chrono::duration<double> timeout,
                                          const std::string& version) {
  return std::make_unique<TcpControl>(launch, timeout, version);
}

}  // namespace filigree
