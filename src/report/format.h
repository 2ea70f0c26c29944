// Numbers as people read them, in the console and in the HTML report alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace filigree {

// "950", "41.2k", "124.4M", "1.30B": three significant digits from a thousand on, four from a million on.
std::string format_count(double count);
// "512 B", "1.5 KiB", "2.41 GiB".
std::string format_bytes(double bytes);
// "45 s", "12 min 03 s", "5 h 07 min", "3 d 04 h"; "0.8 s" below ten seconds.
std::string format_duration(double seconds);
// `digits` significant digits without an exponent where that stays short: "3.4213", "0.00098", "1.2e-07". "-" when NaN.
std::string format_number(double value, int digits = 4);
// "62.5 %".
std::string format_percent(double share);
// "1,234,567".
std::string format_integer(std::int64_t value);

// Rows under one another, each line indented by two: the columns in `left` to the left, the rest to the right. No row
// has more columns than `left`.
std::string format_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& left);

}  // namespace filigree
