// The version of the dense library that serves matmul, e.g. "2.6.3".
#pragma once

#include <string>

namespace filigree {

std::string dense_library_version();

}  // namespace filigree
