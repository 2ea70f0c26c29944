#include "kernels/matmul/matmul_choices.h"

#include <gtest/gtest.h>

namespace filigree {
namespace {

MatmulChoice some_choice(BiasForm bias) {
  MatmulChoice choice{.bias = bias};
  for (std::size_t word = 0; word < choice.algorithm.size(); ++word)
    choice.algorithm[word] = 0x0123456789abcdefull * (word + 1);
  choice.algorithm[3] = 0;
  return choice;
}

TEST(MatmulChoices, ComeBackFromTheirText) {
  for (const MatmulChoice& choice : {MatmulChoice{.separate = true}, MatmulChoice{}, some_choice(BiasForm::none),
                                     some_choice(BiasForm::epilogue), some_choice(BiasForm::before)})
    EXPECT_EQ(matmul_choice_of(to_text(choice)), choice) << to_text(choice);
}

TEST(MatmulChoices, AnyChangedByteIsNoticed) {
  for (const MatmulChoice& choice : {MatmulChoice{.separate = true}, some_choice(BiasForm::epilogue)}) {
    const std::string text = to_text(choice);
    for (std::size_t i = 0; i < text.size(); ++i) {
      std::string changed = text;
      changed[i] = changed[i] == '5' ? '6' : '5';
      EXPECT_FALSE(matmul_choice_of(changed)) << changed;
      EXPECT_FALSE(matmul_choice_of(text.substr(0, i))) << i;
    }
    EXPECT_FALSE(matmul_choice_of(text + "0"));
  }
  EXPECT_FALSE(matmul_choice_of(""));
  EXPECT_FALSE(matmul_choice_of("sparse, algorithm 3"));
}

TEST(MatmulChoices, ShapesThatDifferHaveDifferentTexts) {
  const MatmulShape shape = {.rows = 16384,
                             .columns = 3072,
                             .depth = 768,
                             .operands = DType::bf16,
                             .result = DType::bf16,
                             .y_alignment = 256,
                             .a_alignment = 256,
                             .b_alignment = 256};
  std::vector<MatmulShape> others(18, shape);
  others[0].rows = 1;
  others[1].columns = 1;
  others[2].depth = 1;
  others[3].operands = DType::f32;
  others[4].result = DType::f32;
  others[5].transpose_a = true;
  others[6].transpose_b = true;
  others[7].accumulate = true;
  others[8].bias = true;
  others[9].scaled = true;
  others[10].deterministic = true;
  others[11].epilogue = Epilogue::gelu_forward;
  others[12].a_stride = 4096;
  others[13].y_alignment = 16;
  others[14].a_alignment = 16;
  others[15].b_alignment = 16;
  others[16].bias_alignment = 16;
  others[17].pre_activation_alignment = 16;
  std::map<std::string, int> texts = {{to_text(shape), 1}};
  for (const MatmulShape& other : others) ++texts[to_text(other)];
  for (const auto& [text, times] : texts) EXPECT_EQ(times, 1) << text;
  EXPECT_EQ(to_text(others[8]), "16384x3072x768 bf16 to bf16, bias, aligned 256 256 256 0 0");
}

}  // namespace
}  // namespace filigree
