#include "train/environment.h"

#include <nlohmann/json.hpp>

#include "kernels/matmul/library_version.h"
#include "version.h"

namespace filigree {

std::string environment_json(const Device& device) {
  const nlohmann::ordered_json json = {{"version", build::kVersion},
                                       {"commit", build::kCommit},
                                       {"build_type", build::kBuildType},
                                       {"compiler", build::kCompiler},
                                       {"device", device.description()},
                                       {"threads", device.threads()},
                                       {"libraries", {{"oneDNN", dense_library_version()}}}};
  return json.dump(2) + "\n";
}

}  // namespace filigree
