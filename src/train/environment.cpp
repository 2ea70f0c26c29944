#include "train/environment.h"

#include <nlohmann/json.hpp>

#include "kernels/library_versions.h"
#include "version.h"

namespace filigree {

std::string environment_json(const Device& device) {
  nlohmann::ordered_json json = {{"version", build::kVersion},
                                 {"commit", build::kCommit},
                                 {"build_type", build::kBuildType},
                                 {"compiler", build::kCompiler},
                                 {"device", device.description()},
                                 {"threads", device.threads()},
                                 {"libraries", nlohmann::ordered_json::object()}};
  for (const auto& [library, version] : library_versions(device)) json["libraries"][library] = version;
  return json.dump(2) + "\n";
}

}  // namespace filigree
