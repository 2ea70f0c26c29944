// parse_event: any bytes give an event or none.
#include <cstdint>

#include "io/event_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  filigree::parse_event({reinterpret_cast<const char*>(data), size});
  return 0;
}
