// A user's mistakes: one message on standard error that says what, where and what would be right, exit code 2, and
// nothing left behind.
#include "run_program.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

struct Mistake {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<const char*> says;  // parts of the message
};

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

class Mistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, GetOneClearMessage) {
  const testing::TemporaryFolder folder;
  fs::copy(fs::path(FILIGREE_SOURCE_DIR) / "configs", folder.path() / "configs");
  std::ofstream(folder.path() / "empty.txt").flush();
  std::ofstream(folder.path() / "binary.txt", std::ios::binary).write("ab\0cd\0\0\0", 8);
  std::ofstream(folder.path() / "short.txt") << "Too short.";
  std::ofstream(folder.path() / "typo.toml") << "[train]\nstesp = 5\n";
  std::ofstream(folder.path() / "broken.toml") << "[train\nsteps = 5\n";
  std::ofstream(folder.path() / "type.toml") << "[train]\nsteps = \"many\"\n";
  std::ofstream(folder.path() / "bad.bin") << "not a shard";
  std::ofstream(folder.path() / "odd.json") << R"({"rows": [{"method": "dense"}]})";
  fs::create_directories(folder.path() / "hub");
  std::ofstream(folder.path() / "hub" / "config.json")
      << R"({"model_type": "gpt2", "vocab_size": 64, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 4})";
  for (const char* file : {"existing/notes.txt", "run/config.toml", "project/.lock", "project/data/file.txt"}) {
    fs::create_directories((folder.path() / file).parent_path());
    std::ofstream(folder.path() / file) << "";
  }
  const auto ended = testing::run_program(GetParam().arguments, folder.path());
  EXPECT_EQ(ended.code, 2) << ended.out << ended.err;
  EXPECT_TRUE(ended.err.find("filigree: ") != std::string::npos) << ended.err;
  for (const char* part : GetParam().says)
    EXPECT_NE(ended.err.find(part), std::string::npos) << part << "\nin: " << ended.err;
  for (const char* trace : {".cpp:", "terminate called", "what():"})
    EXPECT_EQ(ended.err.find(trace), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(folder.path() / "out")) << "something was left behind";
  for (const char* file : {"existing/notes.txt", "run/config.toml", "project/.lock", "project/data/file.txt"})
    EXPECT_TRUE(fs::exists(folder.path() / file)) << file;
}

std::vector<std::string> tiny(std::vector<std::string> more) {
  std::vector<std::string> all = {"train", "configs/tiny-slope.toml", "--out", "out"};
  for (std::string& key : more) {
    all.push_back("--set");
    all.push_back(std::move(key));
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    All, Mistakes,
    ::testing::Values(
        Mistake{"no_command", {}, {"--help"}}, Mistake{"unknown_command", {"trian"}, {"trian", "--help"}},
        Mistake{"missing_option", {"train", "configs/tiny-slope.toml"}, {"--out"}},
        Mistake{"missing_config", {"train", "nowhere.toml", "--out", "out"}, {"nowhere.toml"}},
        Mistake{"broken_toml", {"train", "broken.toml", "--out", "out"}, {"broken.toml:1"}},
        Mistake{"unknown_key", {"train", "typo.toml", "--out", "out"}, {"typo.toml:2", "stesp", "steps"}},
        Mistake{
            "wrong_type", {"train", "type.toml", "--out", "out"}, {"type.toml:2", "train.steps", "many", "integer"}},
        Mistake{"out_of_range", tiny({"train.lr=-1"}), {"train.lr", "-1"}},
        Mistake{"existing_run", {"train", "configs/tiny-slope.toml", "--out", "run"}, {"run: exists", "--resume"}},
        Mistake{"not_a_run",
                {"train", "configs/tiny-slope.toml", "--out", "existing", "--resume"},
                {"existing", "neither a run"}},
        Mistake{"not_an_empty_folder", {"train", "configs/tiny-slope.toml", "--out", "existing"}, {"neither a run"}},
        Mistake{"folder_of_another_program",
                {"train", "configs/tiny-slope.toml", "--out", "project", "--set", "data.train=nowhere.txt"},
                {"project", "neither a run"}},
        Mistake{"missing_text", tiny({"data.train=nowhere.txt"}), {"--set: data.train", "nowhere.txt"}},
        Mistake{"empty_text", tiny({"data.train=empty.txt", "data.val=[]"}), {"empty.txt"}},
        Mistake{"binary_text", tiny({"data.train=binary.txt", "data.val=[]"}), {"binary.txt"}},
        Mistake{"short_text", tiny({"data.train=short.txt", "data.val=[]"}), {"context"}},
        Mistake{"bad_shard",
                tiny({"data.train=bad.bin", "data.val=[]", "model.vocab=300", "data.tokenizer=\"\""}),
                {"bad.bin"}},
        Mistake{"pattern_does_not_divide", tiny({"weights.pattern=\"2:7\""}), {"2:7", "64"}},
        Mistake{"bad_pattern", tiny({"weights.pattern=\"4:2\""}), {"weights.pattern", "4:2"}},
        Mistake{"unknown_method", tiny({"weights.method=slop"}), {"weights.method", "slope"}},
        Mistake{"vocabulary_too_small", tiny({"model.vocab=100"}), {"model.vocab", "100", "257"}},
        Mistake{"no_such_gpu", tiny({"run.device=cuda"}), {"run.device", "cuda"}},
        Mistake{"eval_nothing", {"eval", "nowhere"}, {"nowhere"}},
        Mistake{"eval_no_run", {"eval", "existing"}, {"existing", "neither a run"}},
        Mistake{"eval_task",
                {"eval", "existing", "--task", "blip"},
                {"task blip: no task that filigree knows", "perplexity, blimp"}},
        Mistake{
            "tune_rate", {"tune", "configs/tiny-slope.toml", "--lr", "1e-3,0", "--out", "out"}, {"--lr: 0", "above 0"}},
        Mistake{"tune_no_rates", {"tune", "configs/tiny-slope.toml", "--out", "out"}, {"--lr"}},
        Mistake{"tune_not_its_folder",
                {"tune", "configs/tiny-slope.toml", "--lr", "1e-3", "--out", "existing"},
                {"existing", "neither a folder of filigree tune", "another --out"}},
        Mistake{"tune_missing_text",
                {"tune", "configs/tiny-slope.toml", "--lr", "1e-3", "--out", "out", "--set", "data.train=nowhere.txt"},
                {"--set: data.train", "nowhere.txt"}},
        Mistake{"tune_missing_config", {"tune", "nowhere.toml", "--lr", "1e-3", "--out", "out"}, {"nowhere.toml"}},
        Mistake{"generate_nothing", {"generate", "nowhere", "--prompt", "x"}, {"nowhere"}},
        Mistake{
            "prepare_missing", {"prepare", "--text", "nowhere", "--tokenizer", "bytes", "--out", "out"}, {"nowhere"}},
        Mistake{"prepare_tokenizer",
                {"prepare", "--text", "configs/lace.txt", "--tokenizer", "words", "--out", "out"},
                {"words"}},
        Mistake{"prepare_vocabulary",
                {"prepare", "--text", "short.txt", "--tokenizer", "spm:5000", "--out", "out"},
                {"5000"}},
        Mistake{"prepare_no_room_for_bytes",
                {"prepare", "--text", "nowhere", "--tokenizer", "spm:200", "--out", "out"},
                {"spm:200", "259"}},
        Mistake{"tokenizer_no_room_for_bytes",
                tiny({"data.tokenizer=spm:200", "data.train=nowhere.txt"}),
                {"data.tokenizer", "spm:200", "259"}},
        Mistake{"report_no_run", {"report", "existing", "--out", "out"}, {"existing"}},
        Mistake{"bench_json_text",
                {"bench", "step", "--model", "gpt2-1.5b", "--json", "short.txt"},
                {"short.txt", "no file of benchmark results"}},
        Mistake{
            "bench_json_row", {"bench", "matmul", "--shape", "16384x16384", "--json", "odd.json"}, {"odd.json: row 1"}},
        Mistake{"bench_json_folder",
                {"bench", "infer", "--model", "gpt2-1.5b", "--json", "nowhere/results.json"},
                {"nowhere/results.json", "no folder nowhere"}},
        Mistake{"bench_shape", {"bench", "matmul", "--shape", "64"}, {"--shape", "64"}},
        Mistake{"bench_methods", {"bench", "step", "--model", "tiny", "--methods", "dense,slop"}, {"slop", "slope"}},
        Mistake{
            "bench_no_dense", {"bench", "step", "--model", "tiny", "--methods", "slope"}, {"dense must come first"}},
        Mistake{"bench_pattern", {"bench", "step", "--model", "tiny", "--pattern", "2:7"}, {"2:7", "64"}},
        Mistake{"adapters_on_dense", tiny({"weights.method=dense"}), {"adapters.rank"}},
        Mistake{"bench_model", {"bench", "step", "--model", "gpt9"}, {"gpt9", "gpt2-124m"}},
        Mistake{"import_nothing", {"import", "existing", "--out", "out"}, {"existing", "no config.json in it"}},
        Mistake{
            "import_bin", {"import", "hub", "--out", "out"}, {"hub: neither model.safetensors nor", "save_pretrained"}},
        Mistake{"import_over", {"import", "hub", "--out", "existing"}, {"existing: exists already", "another --out"}},
        Mistake{"import_context", {"import", "hub", "--out", "out", "--context", "9"}, {"9 tokens", "8 positions"}},
        Mistake{"import_precision", {"import", "hub", "--out", "out", "--precision", "fp16"}, {"--precision", "fp16"}},
        Mistake{"train_from_bad_folder",
                tiny({"model.init=hub"}),
                {"--set: model.init: ", "hub/config.json: a context of 64 tokens", "8 positions"}},
        Mistake{"eval_hub_folder", {"eval", "hub"}, {"hub: a Hugging Face folder", "filigree import"}},
        Mistake{"export_nothing", {"export", "nowhere", "--out", "out"}, {"nowhere: there is no such run"}},
        Mistake{"export_over", {"export", "run", "--out", "existing"}, {"existing: exists already"}},
        Mistake{"export_size", {"export", "run", "--out", "out", "--max-shard-size", "5TB"}, {"5TB", "5GB, 500MB"}},
        Mistake{"export_adapters", {"export", "run", "--out", "out", "--adapters", "lora"}, {"--adapters", "lora"}},
        Mistake{"no_quickstart_data",
                {"train", "configs/quickstart-slope.toml", "--out", "out"},
                {"configs/quickstart-slope.toml:11: data.train: nothing matches"}},
        Mistake{
            "unknown_option_first", {"prepare", "--txt", "short.txt"}, {"there is no option --txt", "prepare --help"}},
        Mistake{"tokens_range", {"eval", "existing", "--tokens", "-1"}, {"--tokens", "found -1", "at least 0;"}},
        Mistake{"negative_seed", {"generate", "existing", "--prompt", "x", "--seed", "-1"}, {"--seed", "at least 0"}},
        Mistake{"inspect_nothing", {"inspect", "nope.toml"}, {"no such run, checkpoint or configuration file"}},
        Mistake{"inspect_vocabulary",
                {"inspect", "configs/quickstart-slope.toml"},
                {"model.vocab", "nothing matches", "--set model.vocab="}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace filigree
