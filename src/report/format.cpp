#include "report/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace filigree {

std::string format_count(double count) {
  if (!std::isfinite(count)) return "-";
  struct Unit {
    double size;
    const char* suffix;
    int digits;
  };
  static constexpr std::array<Unit, 4> units = {{{1e12, "T", 4}, {1e9, "B", 4}, {1e6, "M", 4}, {1e3, "k", 3}}};
  for (const Unit& unit : units) {
    // The largest value that still rounds to 999 of the unit below belongs there.
    if (std::abs(count) < unit.size * 0.9995) continue;
    const double scaled = count / unit.size;
    const int whole = scaled < 10 ? 1 : scaled < 100 ? 2 : scaled < 1000 ? 3 : unit.digits;
    return fmt::format("{:.{}f}{}", scaled, std::max(0, unit.digits - whole), unit.suffix);
  }
  return count == std::floor(count) ? fmt::format("{:.0f}", count) : fmt::format("{:.3g}", count);
}

std::string format_bytes(double bytes) {
  if (!std::isfinite(bytes)) return "-";
  static constexpr std::array<const char*, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1023.5 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  const int decimals = unit == 0 ? 0 : bytes < 10 ? 2 : bytes < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", bytes, decimals, units[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{} min {:02} s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{} h {:02} min", total / 3600, total % 3600 / 60);
  return fmt::format("{} d {:02} h", total / 86400, total % 86400 / 3600);
}

std::string format_number(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "-" : value > 0 ? "inf" : "-inf";
  if (value == 0) return "0";
  const double magnitude = std::abs(value);
  if (magnitude < 1e-4 || magnitude >= 1e7) return fmt::format("{:.{}e}", value, digits > 3 ? 2 : digits - 1);
  const int whole = static_cast<int>(std::floor(std::log10(magnitude))) + 1;
  return fmt::format("{:.{}f}", value, std::max(0, digits - whole));
}

std::string format_percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f} %", share * 100) : "-";
}

std::string format_integer(std::int64_t value) {
  const std::string digits = std::to_string(value);
  const std::size_t sign = value < 0 ? 1 : 0;
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string format_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& left) {
  std::vector<std::size_t> widths(left.size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line(2, ' ');
    for (std::size_t c = 0; c < row.size(); ++c)
      line += fmt::format(fmt::runtime(left[c] ? "{:<{}}  " : "{:>{}}  "), row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace filigree
