// The libraries that serve a device, with their versions, e.g. {"oneDNN", "2.6.3"} or {"cuBLASLt", "13.1.1"}.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/device.h"

namespace filigree {

std::vector<std::pair<std::string, std::string>> library_versions(const Device& device);

}  // namespace filigree
