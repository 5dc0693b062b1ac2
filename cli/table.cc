#include "cli/table.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace diapason {
namespace {

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

int Columns(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return !Continues(c); }));
}

std::string Cut(const std::string& text, int width) {
  if (Columns(text) <= width) return text;
  if (width <= 0) return "";
  size_t end = 0;
  for (int columns = 0; end < text.size(); ++end) {
    if (!Continues(text[end]) && ++columns == width) break;
  }
  return text.substr(0, end) + "…";
}

void TextTable::AddRow(std::vector<std::string> cells) {
  DIAPASON_CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString(int width) const {
  std::vector<int> widths;
  for (const Column& column : columns_) widths.push_back(Columns(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  int total = -2, widest = -1;
  for (size_t i = 0; i < widths.size(); ++i) {
    total += widths[i] + 2;
    if (!columns_[i].right && (widest < 0 || widths[i] > widths[widest])) widest = static_cast<int>(i);
  }
  if (width > 0 && total > width && widest >= 0) widths[widest] = std::max(8, widths[widest] - (total - width));

  std::string text;
  auto line = [&](auto cell) {
    std::string out;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string shown = Cut(cell(i), widths[i]);
      const std::string blanks(widths[i] - Columns(shown), ' ');
      absl::StrAppend(&out, i == 0 ? "" : "  ", columns_[i].right ? blanks + shown : shown + blanks);
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    absl::StrAppend(&text, width > 0 ? Cut(out, width) : out, "\n");
  };
  line([&](size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) line([&](size_t i) { return row[i]; });
  return text;
}

std::string Digits(double value) {
  if (!std::isfinite(value) || value <= 0) return "-";
  if (value >= 1000) return absl::StrFormat("%.0f", value);
  if (value >= 100) return absl::StrFormat("%.1f", value);
  if (value >= 10) return absl::StrFormat("%.2f", value);
  if (value >= 0.001) return absl::StrFormat("%.3f", value);
  return absl::StrFormat("%.2e", value);
}

std::string Duration(double seconds) {
  if (!std::isfinite(seconds) || seconds <= 0) return "-";
  if (seconds < 1e-3) return Digits(seconds * 1e6) + " us";
  if (seconds < 1) return Digits(seconds * 1e3) + " ms";
  return Digits(seconds) + " s";
}

std::string ClockText(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string Bytes(int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, units[unit]);
}

std::string Count(int64_t n, const std::string& singular) { return absl::StrCat(n, " ", singular, n == 1 ? "" : "s"); }

std::string RecordText(const std::optional<int64_t>& id, const std::string& source) {
  if (id.has_value()) return absl::StrCat(*id);
  return source.empty() ? "-" : source;
}

}  // namespace diapason
