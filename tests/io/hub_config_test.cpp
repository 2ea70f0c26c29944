#include "io/hub/hub_config.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "io/hub/hub_names.h"
#include "io/hub/hub_weights.h"

namespace filigree {
namespace {

using ::testing::HasSubstr;

const std::string kGpt2 =
    R"("model_type": "gpt2", "vocab_size": 64, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 4)";
const std::string kOpt =
    R"("model_type": "opt", "vocab_size": 64, "max_position_embeddings": 32, "hidden_size": 16, "ffn_dim": 32,
       "num_hidden_layers": 2, "num_attention_heads": 4)";
const std::string kLlama =
    R"("model_type": "llama", "vocab_size": 64, "max_position_embeddings": 32, "hidden_size": 16,
       "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4)";
const std::string kMistral =
    R"("model_type": "mistral", "vocab_size": 64, "max_position_embeddings": 32, "hidden_size": 32,
       "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 16)";

HubModel parse(const std::string& members, std::int64_t context = 0) {
  return parse_hub_config("{" + members + "}", "config.json", context);
}

std::string refusal(const std::string& text, std::int64_t context = 0) {
  try {
    parse_hub_config(text, "config.json", context);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(HubConfig, MissingKeysAreWhatTheirClassesTakeThemFor) {
  const ModelConfig gpt2 = parse(kGpt2).model;
  EXPECT_EQ(gpt2.arch, "gpt2");
  EXPECT_EQ(gpt2.ffn, 64);
  EXPECT_EQ(gpt2.norm_epsilon, 1e-5);
  EXPECT_TRUE(gpt2.tied);
  EXPECT_EQ(parse(kGpt2 + R"(, "n_inner": null)").model.ffn, 64);
  EXPECT_TRUE(parse(kOpt).model.tied);
  const ModelConfig llama = parse(kLlama).model;
  EXPECT_EQ(llama.arch, "llama");
  EXPECT_EQ(llama.kv_heads, 4);
  EXPECT_EQ(llama.norm_epsilon, 1e-6);
  EXPECT_EQ(llama.rope_base, 10000.0);
  EXPECT_FALSE(llama.tied);
}

TEST(HubConfig, RotaryBasesOfBothFormsAreRead) {
  EXPECT_EQ(parse(kLlama + R"(, "rope_theta": 500000.0, "rope_scaling": null)").model.rope_base, 500000.0);
  EXPECT_EQ(parse(kLlama + R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5})").model.rope_base, 5e5);
  EXPECT_EQ(parse(kLlama + R"(, "rope_scaling": {"type": "default"})").model.rope_base, 10000.0);
}

TEST(HubConfig, AContextMayBeShorter) {
  const HubModel hub = parse(kGpt2, 8);
  EXPECT_EQ(hub.model.context, 8);
  EXPECT_EQ(hub.stored_context, 32);
  EXPECT_THAT(refusal("{" + kGpt2 + "}", 33), HasSubstr("33 tokens was asked for, but the model has 32 positions"));
}

TEST(HubConfig, KeysThatNobodyKnowsAreReported) {
  const HubModel hub = parse(kLlama + R"(, "use_cache": true, "attention_gates": 3)");
  EXPECT_EQ(hub.unknown_keys, std::vector<std::string>{"attention_gates"});
}

// Mistral's class has 8 key and value heads and a window of 4096 tokens unless the file says otherwise.
TEST(HubConfig, AWindowThatCoversTheContextIsNone) {
  EXPECT_EQ(parse(kMistral).model.kv_heads, 8);
  EXPECT_EQ(parse(kMistral + R"(, "sliding_window": 32)").model.context, 32);
  EXPECT_EQ(parse(kMistral + R"(, "sliding_window": null)").model.context, 32);
  EXPECT_EQ(parse(kMistral + R"(, "sliding_window": 8)", 8).model.context, 8);
  EXPECT_THAT(
      refusal("{" + kMistral + R"(, "sliding_window": 31})"),
      HasSubstr("sliding_window: found 31, but the context is 32 tokens, and filigree attends to all of it: take "
                "the model with a context of at most 31 (import --context 31"));
}

TEST(HubConfig, WhatFiligreeDoesNotComputeIsRefusedWithTheReason) {
  const auto gpt2 = [](const std::string& more) { return refusal("{" + kGpt2 + ", " + more + "}"); };
  const auto opt = [](const std::string& more) { return refusal("{" + kOpt + ", " + more + "}"); };
  const auto llama = [](const std::string& more) { return refusal("{" + kLlama + ", " + more + "}"); };
  EXPECT_THAT(gpt2(R"("activation_function": "relu")"),
              HasSubstr("config.json: activation_function: found \"relu\", filigree has gelu_new or "));
  EXPECT_THAT(gpt2(R"("scale_attn_weights": false)"), HasSubstr("scale_attn_weights: found false"));
  EXPECT_THAT(gpt2(R"("scale_attn_by_inverse_layer_idx": true)"), HasSubstr("scale_attn_by_inverse_layer_idx"));
  EXPECT_THAT(gpt2(R"("add_cross_attention": true)"), HasSubstr("add_cross_attention"));
  EXPECT_THAT(gpt2(R"("quantization_config": {"bits": 4})"), HasSubstr("quantization_config: found an object"));
  EXPECT_THAT(opt(R"("do_layer_norm_before": false)"), HasSubstr("OPT 350M"));
  EXPECT_THAT(opt(R"("word_embed_proj_dim": 8)"), HasSubstr("word_embed_proj_dim: found 8"));
  EXPECT_THAT(opt(R"("enable_bias": false)"), HasSubstr("enable_bias"));
  EXPECT_THAT(opt(R"("activation_function": "gelu")"), HasSubstr("filigree has relu here"));
  EXPECT_THAT(llama(R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})"), HasSubstr("scaled rotary positions"));
  EXPECT_THAT(llama(R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4})"), HasSubstr("scaled rotary"));
  EXPECT_THAT(llama(R"("rope_scaling": {"factor": 2})"), HasSubstr("scaled rotary positions"));
  EXPECT_THAT(llama(R"("head_dim": 8)"), HasSubstr("head_dim: found 8, filigree's heads share hidden_size evenly: 4"));
  EXPECT_THAT(llama(R"("attention_bias": true)"), HasSubstr("attention_bias"));
  EXPECT_THAT(llama(R"("hidden_act": "gelu")"), HasSubstr("hidden_act"));
  EXPECT_THAT(llama(R"("num_key_value_heads": 3)"), HasSubstr("4 heads do not share 3 key and value heads evenly"));
}

TEST(HubConfig, HostileFilesGetOneMessage) {
  EXPECT_THAT(refusal(""), HasSubstr("config.json: not valid JSON, or cut short"));
  EXPECT_THAT(refusal("{" + kGpt2), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("model_type: found nothing, filigree imports gpt2, opt, llama and mistral"));
  EXPECT_THAT(refusal(R"({"model_type": ["gpt2"]})"), HasSubstr("model_type: found a list, expected a text"));
  EXPECT_THAT(refusal(R"({"model_type": "qwen2"})"), HasSubstr("\"qwen2\""));
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "n_layer": 1})"), HasSubstr("n_embd is missing"));
  EXPECT_THAT(refusal("{" + kLlama + R"(, "rope_scaling": )" + std::string(100000, '[') + "}"), HasSubstr("cut short"));
  const auto layers = [](const std::string& value) {
    return refusal(R"({"model_type": "gpt2", "n_layer": )" + value + "}");
  };
  for (const char* value : {"0", "-1", "1.5", "\"2\"", "true", "1025", "18446744073709551617", "1e300", "[2]", "{}"})
    EXPECT_NE(layers(value).find("n_layer: found "), std::string::npos) << value << ": " << layers(value);
  EXPECT_THAT(refusal("{" + kLlama + R"(, "rms_norm_eps": 0})"), HasSubstr("rms_norm_eps: found 0"));
  EXPECT_THAT(refusal("{" + kLlama + R"(, "rope_theta": -1})"), HasSubstr("rope_theta"));
  EXPECT_THAT(
      refusal("{" + kLlama + R"(, "rope_scaling": )" + std::string(100000, '[') + std::string(100000, ']') + "}"),
      HasSubstr("rope_scaling: found a list"));
  EXPECT_LT(refusal(R"({"model_type": ")" + std::string(100000, 'x') + "\"}").size(), 200u);
}

TEST(HubConfig, WhatIsWrittenReadsBackTheSame) {
  for (const std::string& members :
       {kGpt2, kOpt, kLlama + R"(, "num_key_value_heads": 2, "rope_theta": 5e5)", kMistral}) {
    const HubModel hub = parse(members + R"(, "eos_token_id": 63)");
    const std::string written = write_hub_config(hub.model, hub.type, DType::bf16, 7, "");
    const HubModel again = parse_hub_config(written, "config.json");
    EXPECT_EQ(again.type, hub.type);
    EXPECT_EQ(again.model, hub.model);
    EXPECT_TRUE(again.unknown_keys.empty());
    EXPECT_THAT(written, HasSubstr("\"eos_token_id\": 7"));
    EXPECT_THAT(write_hub_config(hub.model, hub.type, DType::bf16, 7, "{" + members + R"(, "eos_token_id": 63})"),
                HasSubstr("\"eos_token_id\": 63"));
  }
  ModelConfig opt = parse(kOpt).model;
  opt.norm_epsilon = 1e-6;
  EXPECT_THROW(write_hub_config(opt, "opt", DType::f32, -1, ""), UserError);
}

std::string index_refusal(const std::string& text) {
  try {
    parse_hub_index(text, "index.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(HubIndex, NamesFilesOfItsFolderOnly) {
  const auto files = parse_hub_index(R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})", "index.json");
  EXPECT_EQ(files.at("b"), "2.safetensors");
  EXPECT_THAT(index_refusal("{"), HasSubstr("index.json: not valid JSON"));
  for (const char* text : {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": "a"})"})
    EXPECT_THAT(index_refusal(text), HasSubstr("weight_map")) << text;
  for (const char* name : {R"("../x")", R"("/etc/passwd")", R"("..")", R"("")", "3", R"("a\u0000b")"})
    EXPECT_THAT(index_refusal(R"({"weight_map": {"a": )" + std::string(name) + "}}"),
                HasSubstr("tensor a lies in no file of this folder"))
        << name;
  EXPECT_THAT(index_refusal(R"({"weight_map": {}})"), HasSubstr("empty"));
}

TEST(HubNames, BuffersHoldNothingLearnt) {
  const HubModel gpt2 = parse(kGpt2), llama = parse(kLlama);
  EXPECT_TRUE(is_hub_buffer(gpt2, "h.11.attn.bias"));
  EXPECT_TRUE(is_hub_buffer(gpt2, "transformer.h.0.attn.masked_bias"));
  EXPECT_FALSE(is_hub_buffer(gpt2, "transformer.h.0.attn.c_attn.bias"));
  EXPECT_FALSE(is_hub_buffer(gpt2, "transformer.h.0.ln_1.bias"));
  EXPECT_TRUE(is_hub_buffer(llama, "model.layers.3.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(is_hub_buffer(llama, "h.11.attn.bias"));
  EXPECT_FALSE(is_hub_buffer(llama, "model.layers.3"));
}

}  // namespace
}  // namespace filigree
