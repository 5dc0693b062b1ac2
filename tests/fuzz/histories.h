// Histories in memory where that can be had, as the targets that import into them need.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>

#include "db/history.h"
#include "db/json_lines.h"

namespace diapason {

// An empty history in a folder that goes with it.
class FuzzHistory {
 public:
  FuzzHistory();
  ~FuzzHistory();
  FuzzHistory(const FuzzHistory&) = delete;
  FuzzHistory& operator=(const FuzzHistory&) = delete;

  History& operator*() { return *history_; }
  History* operator->() { return history_.get(); }
  const std::string& path() const { return path_; }
  std::string Export();
  absl::StatusOr<ImportReport> Import(const std::string& lines, bool skip_damaged = false);

 private:
  std::string folder_, path_;
  std::unique_ptr<History> history_;
};

// What an export of a history with timed, failed, verified records, runs and networks gives.
std::string GoodLines();

}  // namespace diapason
