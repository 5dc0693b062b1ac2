// Text tables and formatting of numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace diapason {

// A table whose columns are as wide as their widest cell and separated by two spaces.
class TextTable {
 public:
  struct Column {
    std::string title;
    bool right = false;  // aligned to the right, as numbers are
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // REQUIRES: as many cells as columns.
  void AddRow(std::vector<std::string> cells);
  // One line for the titles and one per row, each ending in a newline. If lines would be wider than `width` (0: no
  // limit), cells of the widest left-aligned column are cut with "…".
  std::string ToString(int width = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Four significant digits: "1234.5", "12.35", "0.123". "-" for a value of 0 or less or that is not finite, which stands
// for an unknown one.
std::string Digits(double value);
// "12.35 us", "3.400 ms", "1.200 s"; "-" as above.
std::string Duration(double seconds);
// "0:07", "12:05", "1:02:03".
std::string ClockText(double seconds);
// "512 B", "48.0 KiB", "2.0 MiB".
std::string Bytes(int64_t bytes);
// "1 task", "2 tasks".
std::string Count(int64_t n, const std::string& singular);
// The record of a task's schedule in a package: its id ("12"); `source` ("shipped", "file") if it has no id; "-" for
// the fallback schedule.
std::string RecordText(const std::optional<int64_t>& id, const std::string& source);
// Columns of a terminal that UTF-8 text takes, one per code point.
int Columns(const std::string& text);
// The text truncated to at most `width` columns, ending with "…" if it was longer.
std::string Cut(const std::string& text, int width);

}  // namespace diapason
