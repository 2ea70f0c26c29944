// environment.json: where and with what a run was made. For people; nothing in a run depends on it.
#pragma once

#include <string>

#include "core/device.h"

namespace filigree {

// One JSON object: device, threads, commit, version, compiler, libraries.
std::string environment_json(const Device& device);

}  // namespace filigree
