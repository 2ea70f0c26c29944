#include "train/rank_agreement.h"

#include <nlohmann/json.hpp>

#include "comm/agreement.h"
#include "io/config_toml.h"
#include "version.h"

namespace filigree {
namespace {

std::string difference_from_first(const nlohmann::json& first, const nlohmann::json& mine, const Config& config) {
  std::string text;
  for (const char* what : {"version", "device"})
    if (first[what] != mine[what])
      text += std::string("\n  ") + what + ": " + first[what].get<std::string>() + " on rank 0, " +
              mine[what].get<std::string>() + " here";
  if (!text.empty() || first["config"] == mine["config"]) return text;
  for (const ConfigChange& change : difference(parse_config(first["config"].get<std::string>(), "rank 0", "/"), config))
    text += "\n  " + change.key + ": " + change.before + " on rank 0, " + change.after + " here";
  return text;
}

}  // namespace

void require_equal_ranks(Communicator& communicator, const Config& config, const Device& device) {
  if (communicator.size() == 1) return;
  const nlohmann::json mine = {{"version", std::string(build::kVersion) + " (" + std::string(build::kCommit) + ", " +
                                               std::string(build::kCompiler) + ")"},
                               {"device", device.is_cuda() ? device.gpu().name : "CPU"},
                               {"config", write_config(config)}};
  const nlohmann::json first = nlohmann::json::parse(communicator.broadcast(mine.dump()));
  together(communicator, [&] {
    const std::string differences = difference_from_first(first, mine, config);
    require_user(differences.empty(),
                 "rank " + std::to_string(communicator.rank()) +
                     " is not like rank 0; start all ranks with one program and one configuration:" + differences);
  });
}

std::map<std::string, PlanEntry> shared_plans(Communicator& communicator,
                                              const std::map<std::string, PlanEntry>& entries) {
  if (communicator.size() == 1) return entries;
  nlohmann::json mine = nlohmann::json::object();
  for (const auto& [key, entry] : entries) mine[key] = to_text(entry);
  const nlohmann::json first = nlohmann::json::parse(communicator.broadcast(mine.dump()));
  std::map<std::string, PlanEntry> shared;
  for (const auto& [key, text] : first.items()) shared[key] = plan_entry_of(text.get<std::string>()).value();
  return shared;
}

}  // namespace filigree
