// Text tables and numbers for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace diapason {

// A table whose columns are as wide as their widest cell, with two blanks between them.
class TextTable {
 public:
  struct Column {
    std::string title;
    bool right = false;  // aligned to the right, as numbers are
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // REQUIRES: as many cells as columns.
  void AddRow(std::vector<std::string> cells);
  // One line a row, title first, each ending in a newline and none wider than `width` (0: as wide as needed): cells of
  // the widest column that is not right-aligned are cut with "…".
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
// Where a task's schedule in a package is from: its record's id ("12"); "shipped" or "file" if the record has no id,
// since `source` says that it is a ready-made one or from a file; "-" for the fallback schedule.
std::string RecordText(const std::optional<int64_t>& id, const std::string& source);
// The columns of a terminal that UTF-8 text takes, counting each code point as one.
int Columns(const std::string& text);
// The text shortened to at most `width` columns, with "…" at its end if something was lost.
std::string Cut(const std::string& text, int width);

}  // namespace diapason
