// The program from the outside: every command at tiny size, kill -9 and resume, signals, exit codes.
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "report/metrics.h"
#include "run_program.h"
#include "train/checkpoint.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::read_all;
using testing::run_program;
using testing::Started;

class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fs::path(FILIGREE_SOURCE_DIR) / "configs", folder_.path() / "configs");
    config_ = (folder_.path() / "configs" / "tiny-slope.toml").string();
  }
  testing::Ended program(const std::vector<std::string>& arguments) { return run_program(arguments, folder_.path()); }
  testing::TemporaryFolder folder_;
  std::string config_;
};

TEST_F(Program, SaysItsVersionAndExplainsEveryCommand) {
  const auto version = program({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_NE(version.out.find("filigree 0."), std::string::npos);
  EXPECT_NE(version.out.find("back ends: CPU"), std::string::npos);
  for (const char* command :
       {"prepare", "train", "tune", "eval", "generate", "inspect", "import", "export", "bench", "report"}) {
    const auto help = program({command, "--help"});
    EXPECT_EQ(help.code, 0) << command;
    EXPECT_NE(help.out.find("Example:"), std::string::npos) << command;
  }
}

TEST_F(Program, ExportsImportsAndGoesOnFromTheFolder) {
  const auto trained = program({"train", config_, "--out", "run", "--set", "data.tokenizer=spm:300"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto exported = program({"export", "run", "--out", "theirs", "--max-shard-size", "100KB"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_TRUE(exported.out.starts_with("theirs: gpt2 in fp32, ")) << exported.out;
  const auto imported = program({"import", "theirs", "--out", "ours"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_TRUE(imported.out.starts_with("ours: gpt2, ")) << imported.out;
  EXPECT_TRUE(imported.out.ends_with(", fp32, tokenizer spm:300\n")) << imported.out;

  const auto text = [&](const char* model) {
    const auto made = program({"generate", model, "--prompt", "The", "--tokens", "12", "--temperature", "0"});
    EXPECT_EQ(made.code, 0) << made.err;
    return made.out;
  };
  EXPECT_EQ(text("ours"), text("run"));
  EXPECT_TRUE(program({"inspect", "ours"}).out.starts_with("ours: imported, gpt2 of Hugging Face\n"));
  const auto no_data = program({"eval", "ours"});
  EXPECT_EQ(no_data.code, 2);
  EXPECT_NE(no_data.err.find("an imported model has no data of its own; name some with --data"), std::string::npos);
  const auto loss = [&](const char* model) {
    const auto scored = program({"eval", model, "--data", "run/data", "--json"});
    EXPECT_EQ(scored.code, 0) << scored.err;
    return nlohmann::json::parse(scored.out).at("results").at("perplexity").at("loss,none").get<double>();
  };
  EXPECT_NEAR(loss("ours"), loss("run"), 1e-4);

  // Dense into sparse, from the folder itself; and again, by --resume.
  std::ofstream(folder_.path() / "on.toml")
      << "[model]\ninit = \"theirs\"\n[data]\ntrain = \"run/data\"\n[train]\nsteps = 3\nbatch_tokens = 256\n"
         "[weights]\nmethod = \"block\"\nblock = \"8x8\"\n";
  const auto on = program({"train", "on.toml", "--out", "on"});
  ASSERT_EQ(on.code, 0) << on.err;
  const auto resumed = program({"train", "on.toml", "--out", "on", "--resume", "--set", "train.steps=4"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("step 4/4"), std::string::npos) << resumed.out;
  const auto peft = program({"export", "on", "--out", "beside", "--adapters", "peft"});
  EXPECT_EQ(peft.code, 2);
  EXPECT_NE(peft.err.find("has no adapters"), std::string::npos) << peft.err;
  EXPECT_FALSE(fs::exists(folder_.path() / "beside"));
}

TEST_F(Program, PrintsTheReferenceOfKeys) {
  const auto ended = program({"train", "--keys"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, read_all(fs::path(FILIGREE_SOURCE_DIR) / "docs" / "configuration.md"));
}

TEST_F(Program, PrepareWarnsOfTextThatIsOddAndClearsWhatAKilledOneLeft) {
  std::ofstream(folder_.path() / "odd.txt") << std::string(500, 'a') << "\n\xff and so on\n";
  const pid_t dead = testing::Started({"--version"}, folder_.path()).pid();
  ::waitpid(dead, nullptr, 0);
  const fs::path stale = folder_.path() / ("data." + std::to_string(dead) + "-0.tmp");
  const fs::path alive = folder_.path() / ("data." + std::to_string(::getpid()) + "-0.tmp");
  fs::create_directories(stale / "inside");
  fs::create_directories(alive);
  const auto ended = program({"prepare", "--text", "odd.txt", "odd.txt", "--tokenizer", "bytes", "--out", "data"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("warning: odd.txt: byte 501 (line 2) is not UTF-8;"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("warning: odd.txt is given more than once; it is used once"), std::string::npos)
      << ended.err;
  EXPECT_NE(ended.err.find("1 document, 513 bytes"), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(fs::exists(alive)) << "its process lives";
}

class ProgramByMethod : public Program, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    Program::SetUp();
    config_ = (folder_.path() / "configs" / (std::string("tiny-") + GetParam() + ".toml")).string();
  }
};
INSTANTIATE_TEST_SUITE_P(Methods, ProgramByMethod, ::testing::Values("slope", "block"));

TEST_P(ProgramByMethod, TrainsEvaluatesGeneratesInspectsAndReports) {
  const auto trained = program({"train", config_, "--out", "run"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(trained.out.find('\x1b'), std::string::npos) << "no escape sequences where there is no terminal";
  EXPECT_NE(trained.out.find("step 20/20"), std::string::npos) << trained.out;

  const auto scored = program({"eval", "run", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  const auto score = nlohmann::json::parse(scored.out);
  EXPECT_EQ(score.at("step"), 20);
  const auto evaluations = read_eval_metrics(folder_.path() / "run" / "eval.jsonl");
  // The loop evaluates with training's kernels, `eval` with those of inference: the same model to rounding.
  EXPECT_NEAR(score.at("results").at("perplexity").at("loss,none").get<double>(),
              *find_value(evaluations.back().values, "loss"), 1e-4);

  const auto once = program({"generate", "run", "--prompt", "The", "--tokens", "20", "--seed", "4"});
  const auto again = program({"generate", "run", "--prompt", "The", "--tokens", "20", "--seed", "4"});
  ASSERT_EQ(once.code, 0) << once.err;
  EXPECT_EQ(once.out, again.out);
  EXPECT_TRUE(once.out.starts_with("The"));
  const auto checkpoint =
      program({"generate", "run/checkpoints/step-00000020", "--prompt", "The", "--tokens", "20", "--seed", "4"});
  EXPECT_EQ(checkpoint.out, once.out);

  for (const char* data : {"nothing", "configs/lace.txt"}) {
    const auto refused = program({"eval", "run", "--data", data});
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find("--data: "), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("token shards (.bin) or a folder made by filigree prepare"), std::string::npos);
    EXPECT_EQ(refused.err.find("data.train"), std::string::npos) << refused.err;
  }

  const auto inspected = program({"inspect", "run", "--json"});
  ASSERT_EQ(inspected.code, 0) << inspected.err;
  const auto summary = nlohmann::json::parse(inspected.out);
  EXPECT_LT(summary.at("memory").at("sparse_layers_ratio").get<double>(), 0.7);
  EXPECT_LT(summary.at("parameters").at("kept"), summary.at("parameters").at("dense"));
  EXPECT_EQ(summary.at("layers"),
            nlohmann::json::parse(read_all(folder_.path() / "run" / "inspect.json")).at("layers"));
  const std::string shown = program({"inspect", "run"}).out;
  EXPECT_NE(shown.find("all as their pattern says"), std::string::npos);
  EXPECT_NE(shown.find("On top comes the workspace"), std::string::npos) << shown;

  const auto reported = program({"report", "run", "--out", "report.html"});
  ASSERT_EQ(reported.code, 0) << reported.err;
  EXPECT_TRUE(fs::exists(folder_.path() / "report.html"));
}

TEST_F(Program, InspectShowsACheckpointAsItIs) {
  const auto trained = program({"train", config_, "--out", "run", "--set", "train.steps=8", "--set",
                                "weights.start=0.5", "--set", "adapters.start=0.75", "--set", "checkpoint.every=2",
                                "--set", "checkpoint.keep=0", "--set", "run.deterministic=true"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto inspect = [&](int step, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"inspect", checkpoint_path("run", step).string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto ended = program(arguments);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  const auto json = [&](int step) { return nlohmann::json::parse(inspect(step, {"--json"})); };
  const auto layer = [&](const nlohmann::json& summary) { return summary.at("layers").at(1); };  // the first sparse one
  const auto weights = [](const nlohmann::json& summary) {
    return summary.at("memory").at("weights").at("bytes").get<double>();
  };

  const auto dense = json(2), sparse = json(6), adapted = json(8);
  EXPECT_EQ(layer(dense).at("method"), "dense");
  EXPECT_EQ(layer(dense).at("backend"), "dense");
  EXPECT_NE(inspect(2, {}).find("step 2 of 8, in its dense phase, which ends at step 4, without adapters"),
            std::string::npos)
      << inspect(2, {});
  EXPECT_EQ(layer(sparse).at("method"), "slope");
  EXPECT_EQ(layer(sparse).at("backend"), "forward sparse, dx sparse, dw sparse");
  EXPECT_NE(inspect(8, {}).find("with adapters since step 6"), std::string::npos) << inspect(8, {});
  EXPECT_GT(weights(adapted), weights(sparse));

  const fs::path state = folder_.path() / checkpoint_path("run", 6) / "state.json";
  std::string text = read_all(state);
  const std::string chosen = "\"sparse\"";
  for (std::size_t at = text.find("\"dx "); at != std::string::npos; at = text.find("\"dx ", at + 1))
    text.replace(text.find(chosen, at), chosen.size(), "\"dense-after-unpack\"");
  std::ofstream(state) << text;
  EXPECT_EQ(layer(json(6)).at("backend"), "forward sparse, dx dense-after-unpack, dw sparse");
  EXPECT_NE(inspect(6, {}).find("forward sparse, dx unpacked, dw sparse"), std::string::npos) << inspect(6, {});
  EXPECT_NE(inspect(6, {"--inference"}).find("  sparse\n"), std::string::npos) << inspect(6, {"--inference"});
  const auto planned = program({"inspect", config_});
  EXPECT_NE(planned.out.find("chosen when a run starts"), std::string::npos) << planned.out;
}

TEST_F(Program, PreparesAFolderAndTrainsOnIt) {
  fs::create_directories(folder_.path() / "notes");
  for (int i = 0; i < 30; ++i)
    std::ofstream(folder_.path() / "notes" / std::string("n").append(std::to_string(i)).append(".txt"))
        << read_all(folder_.path() / "configs" / "lace.txt").substr(0, 600 + 10 * static_cast<std::size_t>(i));
  ASSERT_EQ(program({"prepare", "--text", "notes", "--tokenizer", "spm:300", "--out", "data"}).code, 0);
  const auto trained = program({"train", config_, "--out", "run", "--set", "data.train=data/train-*.bin", "--set",
                                "data.val=data/val-*.bin", "--set", "data.tokenizer=spm:300", "--set", "train.steps=3",
                                "--set", "train.warmup=1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto continued = program({"generate", "run", "--prompt", "lace", "--tokens", "5"});
  EXPECT_EQ(continued.code, 0) << continued.err;
}

TEST_F(Program, WorksInFoldersWithGlobCharacters) {
  const fs::path place = folder_.path() / "what? [1]*";
  fs::create_directories(place);
  fs::rename(folder_.path() / "configs", place / "configs");
  const auto here = [&](const std::vector<std::string>& arguments) { return run_program(arguments, place); };
  const auto prepared = here({"prepare", "--text", "configs/lace.txt", "--tokenizer", "bytes", "--out", "d[a]"});
  ASSERT_EQ(prepared.code, 0) << prepared.err;
  const auto trained = here({"train", "configs/tiny-slope.toml", "--out", "run [2]?", "--set",
                             "data.train=d[a]/train-*.bin", "--set", "data.val=d[a]", "--set", "train.steps=3"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(here({"train", "configs/tiny-slope.toml", "--out", "of text*", "--set", "train.steps=3"}).code, 0);
  for (const char* run : {"run [2]?", "of text*"}) {
    const auto scored = here({"eval", run});
    EXPECT_EQ(scored.code, 0) << scored.err;
  }
  EXPECT_EQ(here({"eval", "run [2]?", "--data", "d[a]/val-*.bin"}).code, 0);
  EXPECT_EQ(here({"report", "run [2]?", "of text*", "--out", "r[1].html"}).code, 0);
  EXPECT_TRUE(fs::exists(place / "r[1].html"));
}

TEST_F(Program, InspectsConfigurationsOfEverySize) {
  for (const char* name : {"quickstart-dense", "quickstart-slope", "quickstart-block", "gpt2-124m-dense",
                           "gpt2-124m-slope", "tiny-slope", "tiny-block"}) {
    const auto ended = program({"inspect", "configs/" + std::string(name) + ".toml", "--set", "model.vocab=50257"});
    EXPECT_EQ(ended.code, 0) << name << ended.err;
  }
  // Without model.vocab: what the tokenizer has, rounded up as training does.
  const auto planned = program({"inspect", "configs/quickstart-slope.toml", "--set", "data.tokenizer=spm:2000"});
  EXPECT_NE(planned.out.find("vocabulary 2048"), std::string::npos) << planned.err;
  EXPECT_NE(program({"inspect", "configs/tiny-slope.toml"}).out.find("vocabulary 257"), std::string::npos);
  ASSERT_EQ(program({"prepare", "--text", "configs/lace.txt", "--tokenizer", "spm:300", "--out", "data"}).code, 0);
  const auto prepared = program({"inspect", "configs/quickstart-slope.toml", "--set", "data.tokenizer=\"\"", "--set",
                                 "data.train=data", "--set", "data.val=data"});
  EXPECT_NE(prepared.out.find("vocabulary 300"), std::string::npos) << prepared.err;
  const auto phases =
      program({"inspect", "configs/tiny-slope.toml", "--set", "model.vocab=257", "--set", "weights.start=0.25"});
  EXPECT_NE(phases.out.find("in the first 5 steps, every layer is dense"), std::string::npos)
      << phases.out << phases.err;
  const auto large = program({"inspect", "configs/gpt2-124m-slope.toml", "--set", "model.preset=opt-66b", "--json"});
  ASSERT_EQ(large.code, 0) << large.err;
  EXPECT_GT(nlohmann::json::parse(large.out).at("parameters").at("dense").get<double>(), 6e10);
}

// Every example configuration trains, at tiny size.
TEST_F(Program, RunsEveryExampleConfiguration) {
  ASSERT_EQ(program({"prepare", "--text", "configs/lace.txt", "--tokenizer", "bytes", "--out", "data", "--val-fraction",
                     "0.2"})
                .code,
            0);
  for (const auto& entry : fs::directory_iterator(folder_.path() / "configs")) {
    if (entry.path().extension() != ".toml") continue;
    const std::string name = entry.path().stem().string();
    const auto ended = program({"train", entry.path().string(),
                                "--out", "runs/" + name,
                                "--set", "data.train=data/train-*.bin",
                                "--set", "data.val=data/val-*.bin",
                                "--set", "data.tokenizer=bytes",
                                "--set", "model.layers=2",
                                "--set", "model.width=32",
                                "--set", "model.heads=2",
                                "--set", "model.kv_heads=2",
                                "--set", "model.ffn=64",
                                "--set", "model.context=32",
                                "--set", "train.steps=3",
                                "--set", "train.warmup=1",
                                "--set", "train.batch_tokens=64",
                                "--set", "train.micro_batch=2",
                                "--set", "eval.every=0"});
    EXPECT_EQ(ended.code, 0) << name << ": " << ended.err;
  }
}

// Longer runs for signals: a step takes about a millisecond, so that they are killed in the middle.
std::vector<std::string> long_run(const std::string& config, const std::string& run) {
  return {"train", config,
          "--out", run,
          "--set", "train.steps=400",
          "--set", "checkpoint.every=25",
          "--set", "checkpoint.keep=0",
          "--set", "run.deterministic=true",
          "--set", "eval.every=100"};
}

void wait_for(const fs::path& path) {
  for (int i = 0; i < 24000 && !fs::exists(path); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(fs::exists(path)) << path << " did not come in two minutes";
}

TEST_F(Program, Kill9AndResumeEqualTheUninterruptedRun) {
  for (const char* precision : {"fp32", "bf16"}) {
    const std::string whole = std::string("whole-") + precision, broken = std::string("broken-") + precision;
    auto arguments = long_run(config_, whole);
    arguments.insert(arguments.end(), {"--set", std::string("run.precision=") + precision});
    ASSERT_EQ(program(arguments).code, 0);
    arguments[3] = broken;
    Started started(arguments, folder_.path());
    wait_for(checkpoint_path(folder_.path() / broken, 225));  // adapters came at step 200
    kill(started.pid(), SIGKILL);
    ASSERT_EQ(started.wait().code, -SIGKILL) << "it ended before it was killed";
    arguments.push_back("--resume");
    const auto resumed = program(arguments);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
      EXPECT_EQ(read_all(checkpoint_path(folder_.path() / whole, 400) / file),
                read_all(checkpoint_path(folder_.path() / broken, 400) / file))
          << file;
    const auto left = read_step_metrics(folder_.path() / whole / "metrics.jsonl"),
               right = read_step_metrics(folder_.path() / broken / "metrics.jsonl");
    ASSERT_EQ(left.size(), 400u);
    ASSERT_EQ(right.size(), 400u);
    for (std::size_t i = 0; i < 400; ++i) {
      ASSERT_EQ(left[i].loss, right[i].loss);
      ASSERT_EQ(left[i].grad_norm, right[i].grad_norm);
    }
    EXPECT_EQ(read_all(folder_.path() / whole / "eval.jsonl"), read_all(folder_.path() / broken / "eval.jsonl"));
  }
}

TEST_F(Program, SignalsWriteACheckpointAndExitWith3) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string run = "run-" + std::to_string(signal);
    auto arguments = long_run(config_, run);
    arguments[5] = "train.steps=100000";
    Started started(arguments, folder_.path());
    wait_for(folder_.path() / run / "metrics.jsonl");
    kill(started.pid(), signal);
    const auto ended = started.wait();
    EXPECT_EQ(ended.code, 3) << ended.err;
    const auto newest = newest_checkpoint(folder_.path() / run);
    ASSERT_TRUE(newest.has_value());
    EXPECT_EQ(static_cast<std::size_t>(CheckpointReader(*newest).state().step),
              read_step_metrics(folder_.path() / run / "metrics.jsonl").size());
    EXPECT_NE(ended.out.find("--resume"), std::string::npos) << ended.out;
    EXPECT_NE(ended.err.find("writing a checkpoint; a second signal stops at once"), std::string::npos) << ended.err;
  }
}

TEST_F(Program, ASignalDuringSetUpKeepsNothingAndClaimsNoCheckpoint) {
  std::ofstream long_text(folder_.path() / "long.txt");
  for (int i = 0; i < 400'000; ++i) long_text << "In year " << i << " the heron waits for rain.\n";
  long_text.close();
  struct Moment {
    const char* text;
    const char* file;  // the signal comes when it is there
    const char* says;
  };
  for (const auto& [text, file, says] :
       {Moment{"long.txt", "out/.lock", "interrupted; nothing was written"},
        Moment{"configs/lace.txt", "out/data", "out: interrupted during set-up; nothing of it was kept"}}) {
    // A model whose set-up takes about a second.
    Started started({"train", config_, "--out", "out", "--set", "data.tokenizer=bytes", "--set", "data.val=[]", "--set",
                     std::string("data.train=") + text, "--set", "model.width=1024", "--set", "model.layers=6"},
                    folder_.path());
    wait_for(folder_.path() / file);
    kill(started.pid(), SIGINT);
    const auto ended = started.wait();
    EXPECT_EQ(ended.code, 3) << ended.err;
    EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err;
    EXPECT_EQ((ended.out + ended.err).find("checkpoint"), std::string::npos) << ended.out << ended.err;
    EXPECT_FALSE(fs::exists(folder_.path() / "out"));
  }
}

TEST_F(Program, TooLittleMemoryIsSaidInTheCommandsOwnWords) {
  ASSERT_EQ(program({"train", config_, "--out", "run", "--set", "train.steps=1", "--set", "train.warmup=0"}).code, 0);
  const auto scored = program({"eval", "run", "--batch", "1000000000000"});
  EXPECT_EQ(scored.code, 1);
  EXPECT_NE(scored.err.find("a smaller batch or a shorter context needs less"), std::string::npos) << scored.err;
  EXPECT_EQ(scored.err.find("micro_batch"), std::string::npos) << scored.err;
  const auto trained = program({"train", config_, "--out", "out", "--set", "train.batch_tokens=1000000000000000",
                                "--set", "train.micro_batch=0", "--set", "train.steps=1", "--set", "train.warmup=0"});
  EXPECT_EQ(trained.code, 1);
  EXPECT_NE(trained.err.find("out of memory"), std::string::npos) << trained.err;
  EXPECT_NE(trained.err.find("train.micro_batch"), std::string::npos) << trained.err;
}

TEST_F(Program, TunesOverAGridThatLaterGrows) {
  const auto tuned = program({"tune", config_, "--lr", "1e-3,4e-3,1e30", "--steps", "10", "--out", "rates", "--set",
                              "train.clip=0", "--set", "train.warmup=0"});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_NE(tuned.out.find("pick: --set train.lr=0.004"), std::string::npos) << tuned.out;
  EXPECT_NE(tuned.out.find("diverged after"), std::string::npos) << tuned.out;
  const auto more = program({"tune", config_, "--lr", "2e-3", "--steps", "10", "--out", "rates", "--set",
                             "train.clip=0", "--set", "train.warmup=0", "--json"});
  ASSERT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(nlohmann::json::parse(more.out).at("rows").size(), 4u);
  EXPECT_EQ(more.out, read_all(folder_.path() / "rates" / "tune.json"));
  const auto reported = program({"report", "rates/lr-0.001", "rates/lr-1e+30", "--out", "report.html"});
  EXPECT_EQ(reported.code, 0) << reported.err;
  EXPECT_EQ(program({"eval", "rates/lr-0.004"}).code, 0);
}

TEST_F(Program, ASignalEndsTuningAndTheSameCommandGoesOn) {
  const std::vector<std::string> arguments = {"tune", config_, "--lr",  "1e-3,2e-3", "--steps",
                                              "400",  "--out", "rates", "--set",     "run.deterministic=true"};
  Started started(arguments, folder_.path());
  wait_for(folder_.path() / "rates" / "lr-0.002" / "metrics.jsonl");
  kill(started.pid(), SIGINT);
  const auto ended = started.wait();
  ASSERT_EQ(ended.code, 3) << ended.err;
  EXPECT_NE(ended.out.find("the same command goes on from here"), std::string::npos) << ended.out;
  EXPECT_EQ(nlohmann::json::parse(read_all(folder_.path() / "rates" / "tune.json")).at("rows").size(), 1u);
  const auto before = read_step_metrics(folder_.path() / "rates" / "lr-0.002" / "metrics.jsonl");
  const auto again = program(arguments);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("lr 0.001: done before"), std::string::npos) << again.out;
  const auto after = read_step_metrics(folder_.path() / "rates" / "lr-0.002" / "metrics.jsonl");
  ASSERT_EQ(after.size(), 400u);
  EXPECT_EQ(after.front().step_ms, before.front().step_ms) << "it went on from its checkpoint";
}

TEST_F(Program, ScoresMinimalPairs) {
  ASSERT_EQ(program({"train", config_, "--out", "run", "--set", "train.steps=3"}).code, 0);
  fs::create_directories(folder_.path() / "pairs");
  for (const char* set : {"first", "second"})
    std::ofstream(folder_.path() / "pairs" / (std::string(set) + ".jsonl"))
        << R"({"sentence_good": "The lace is white.", "sentence_bad": "The lace are white.", "linguistics_term": "x"})"
        << "\n";
  const auto scored = program({"eval", "run", "--task", "blimp,perplexity", "--task-data", "blimp=pairs", "--json"});
  ASSERT_EQ(scored.code, 0) << scored.err;
  const auto json = nlohmann::json::parse(scored.out).at("results");
  EXPECT_EQ(json.at("blimp_first").at("acc,none"), json.at("blimp").at("acc,none"));
  EXPECT_GT(json.at("perplexity").at("loss,none"), 0.0);
  const auto printed = program({"eval", "run", "--task", "blimp", "--task-data", "pairs"});
  EXPECT_NE(printed.out.find("  blimp_x"), std::string::npos) << printed.out;
  EXPECT_EQ(program({"eval", "run", "--task", "blimp", "--task-data", "pairs", "--limit", "1"}).code, 0);
  for (const auto& [data, part] :
       {std::pair{"nowhere", "nowhere: there is no such file or folder"}, std::pair{"configs", "holds no .jsonl file"},
        std::pair{"run", "eval.jsonl line 1: it has no text under \"linguistics_term\""}}) {
    const auto refused = program({"eval", "run", "--task", "blimp", "--task-data", data});
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.err.find(part), std::string::npos) << refused.err;
  }
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{}, {"--data", "pairs"}, {"--task-data", "pairs", "--tokens", "5"}}) {
    std::vector<std::string> all = {"eval", "run", "--task", "blimp"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    EXPECT_EQ(program(all).code, 2);
  }
}

TEST_F(Program, DoctorSaysWhatIsThereAndWhatIsNot) {
  const auto looked = program({"doctor", "--json"});
  const auto json = nlohmann::json::parse(looked.out);
  std::int64_t missing = 0;
  std::set<std::string> names;
  for (const auto& check : json.at("checks")) {
    names.insert(check.at("name"));
    const bool found = check.at("found");
    if (!found && check.at("needed")) ++missing;
    EXPECT_EQ(check.at("advice").get<std::string>().empty(), found) << check;
    EXPECT_TRUE(!found || !check.at("value").get<std::string>().empty()) << check;
  }
  EXPECT_EQ(json.at("missing"), missing);
  EXPECT_EQ(looked.code, missing == 0 ? 0 : 1);
  for (const char* name : {"filigree", "processor", "memory", "disk", "libraries", "NVIDIA driver", "GPU", "nvcc"})
    EXPECT_TRUE(names.contains(name)) << name;
  const auto printed = program({"doctor"});
  EXPECT_NE(printed.out.find("found    processor"), std::string::npos) << printed.out;
  EXPECT_EQ(printed.code, looked.code);
}

TEST_F(Program, BenchmarksWriteTheirRows) {
  const auto ended = program({"bench", "step", "--model", "tiny", "--vocab", "128", "--batch", "2", "--repeats", "2",
                              "--precision", "fp32", "--json", "results.json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto json = nlohmann::json::parse(read_all(folder_.path() / "results.json"));
  EXPECT_EQ(json.at("rows").size(), 13u);
  EXPECT_NE(json.at("command").get<std::string>().find("bench step --model tiny"), std::string::npos);
  const std::vector<std::string> all = {"--methods", "dense,slope,block", "--block", "16x32", "--density", "0.25"};
  for (std::vector<std::string> arguments :
       {std::vector<std::string>{"bench", "matmul", "--shape", "64x64", "--tokens", "16", "--repeats", "1"},
        {"bench", "step", "--model", "tiny", "--vocab", "128", "--batch", "2", "--repeats", "1"},
        {"bench", "memory", "--model", "tiny", "--vocab", "128"},
        {"bench", "infer", "--model", "tiny", "--vocab", "128", "--prompt", "8", "--tokens", "4", "--repeats", "1"}}) {
    arguments.insert(arguments.end(), all.begin(), all.end());
    const auto printed = program(arguments);
    ASSERT_EQ(printed.code, 0) << printed.err;
    for (const char* method : {"dense", "slope", "block"})
      EXPECT_NE(printed.out.find(method), std::string::npos) << printed.out;
  }
}

}  // namespace
}  // namespace filigree
