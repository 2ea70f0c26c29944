// The way of values between hosts, beside that of arrays between GPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace filigree {

class Control {
 public:
  virtual ~Control() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // As Communicator's.
  virtual std::vector<std::string> all_gather(std::string_view text) = 0;
  virtual void give_up() noexcept = 0;
  // For the vigil: the main thread is about to start a collective of arrays, or has done something of its own.
  virtual void entered() noexcept = 0;
  virtual void progress() noexcept = 0;
};

}  // namespace filigree
