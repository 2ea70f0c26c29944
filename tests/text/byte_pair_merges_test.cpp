#include "text/byte_pair_merges.h"

#include <map>
#include <utility>

#include "text_support.h"

namespace filigree {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens merged(const BytePairMerges& merges, Tokens tokens) {
  tokens.resize(merges.apply(tokens));
  return tokens;
}

TEST(BytePairMerges, TheLowestRankThenTheLeftmostComesFirst) {
  BytePairMerges merges;
  EXPECT_TRUE(merges.add({1, 2, 10, 1}));
  EXPECT_TRUE(merges.add({2, 3, 11, 0}));
  EXPECT_TRUE(merges.add({1, 1, 12, 2}));
  EXPECT_FALSE(merges.add({1, 2, 13, 5}));  // there already
  EXPECT_EQ(merges.size(), 3u);
  EXPECT_EQ(merged(merges, {1, 2, 3}), (Tokens{1, 11}));
  EXPECT_EQ(merged(merges, {1, 2, 2, 3}), (Tokens{10, 11}));
  EXPECT_EQ(merged(merges, {1, 1, 1}), (Tokens{12, 1}));
  EXPECT_EQ(merged(merges, {}), Tokens{});
  EXPECT_EQ(merged(merges, {3}), Tokens{3});
  EXPECT_EQ(merged(BytePairMerges(), {1, 2}), (Tokens{1, 2}));
}

// The definition, word for word.
Tokens merged_plainly(const std::map<std::pair<int, int>, BytePairMerge>& merges, Tokens tokens) {
  for (;;) {
    const BytePairMerge* best = nullptr;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = merges.find({tokens[i], tokens[i + 1]});
      if (found == merges.end() || (best != nullptr && best->rank <= found->second.rank)) continue;
      best = &found->second;
      where = i;
    }
    if (best == nullptr) return tokens;
    tokens[where] = best->result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(BytePairMerges, AgreesWithTheDefinitionOnShortAndLongWords) {
  for (std::uint32_t stream = 0; stream < 60; ++stream) {
    const Random random(9, RandomPurpose::test, stream);
    std::uint64_t next = 0;
    BytePairMerges merges;
    std::map<std::pair<int, int>, BytePairMerge> plain;
    for (std::int32_t token = 4; token < 60; ++token) {  // of any two tokens before; some results have several pairs
      const auto below = [&] {
        return static_cast<std::int32_t>(random.below(next++, static_cast<std::uint32_t>(token)));
      };
      const BytePairMerge merge{below(), below(), token, token / 2};
      if (merges.add(merge)) plain[{merge.left, merge.right}] = merge;
    }
    for (const std::uint32_t size : {2u, 7u, 47u, 48u, 49u, 50u, 300u}) {
      Tokens tokens(size);
      for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(next++, 4));
      ASSERT_EQ(merged(merges, tokens), merged_plainly(plain, tokens)) << size << " tokens, stream " << stream;
    }
  }
}

}  // namespace
}  // namespace filigree
