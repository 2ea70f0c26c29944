// The 57 subjects of MMLU (Hendrycks et al., arXiv 2009.03300) in their four groups.
#pragma once

#include <string>
#include <string_view>

namespace filigree {

// "stem", "humanities", "social_sciences" or "other"; "" for what is no subject. Subjects are written as in the data:
// "abstract_algebra".
std::string_view mmlu_group(std::string_view subject);

}  // namespace filigree
