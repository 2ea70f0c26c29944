#include "comm/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace filigree {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launched(const Variables& variables) {
  return launch_from([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

std::string refusal(const Variables& variables) {
  try {
    launched(variables);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Launch, WithoutALauncherThereIsOneRank) {
  EXPECT_EQ(launched({}).size, 1);
  EXPECT_EQ(launched({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}).size, 1);
  const Launch one = launched({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  EXPECT_EQ(one.way, Launch::Way::alone);
}

TEST(Launch, OfMpirun) {
  const Launch found = launched({{"OMPI_COMM_WORLD_RANK", "5"},
                                 {"OMPI_COMM_WORLD_SIZE", "8"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                 {"SLURM_STEP_NUM_TASKS", "2"},
                                 {"SLURM_PROCID", "0"}});
  EXPECT_EQ(found.way, Launch::Way::mpi);
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 4);
  EXPECT_EQ(launched({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).way, Launch::Way::mpi);
}

TEST(Launch, OfTorchrun) {
  Variables variables = {{"RANK", "3"},         {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
  const Launch found = launched(variables);
  EXPECT_EQ(found.way, Launch::Way::address);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.host, "n1");
  EXPECT_EQ(found.port, 29501);
  variables["FILIGREE_PORT"] = "1234";
  EXPECT_EQ(launched(variables).port, 1234);
  variables.erase("MASTER_ADDR");
  EXPECT_EQ(refusal(variables), "the environment has WORLD_SIZE, but no MASTER_ADDR; torchrun sets both");
}

TEST(Launch, OfSrun) {
  Variables variables = {{"SLURM_PROCID", "2"},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                         {"SLURM_STEP_NODELIST", "gpu[003-004]"},
                         {"SLURM_JOB_ID", "1234567"}};
  const Launch found = launched(variables);
  EXPECT_EQ(found.way, Launch::Way::address);
  EXPECT_EQ(found.host, "gpu003");
  EXPECT_EQ(found.port, 24567);
  EXPECT_EQ(found.local_size, 2);
  variables["PMIX_RANK"] = "2";
  EXPECT_EQ(launched(variables).way, Launch::Way::mpi);
}

TEST(Launch, FirstHosts) {
  EXPECT_EQ(first_host("n1"), "n1");
  EXPECT_EQ(first_host("n1,n2"), "n1");
  EXPECT_EQ(first_host("n[7,9]"), "n7");
  EXPECT_EQ(first_host("n[003-010,12],m1"), "n003");
  EXPECT_EQ(first_host("n[5]"), "n5");
}

TEST(Launch, WhatMakesNoSenseIsNamed) {
  EXPECT_EQ(refusal({{"RANK", "4"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "1"}}),
            "the environment's RANK is \"4\"; expected a whole number from 0 to 3, as a launcher sets it");
  EXPECT_EQ(
      refusal({{"WORLD_SIZE", "two"}}),
      "the environment's WORLD_SIZE is \"two\"; expected a whole number from 1 to 1048576, as a launcher sets it");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "2"}}),
            "the environment has no RANK, but other variables of a launcher; start filigree with mpirun, srun or "
            "torchrun, or without any of them");
}

}  // namespace
}  // namespace filigree
