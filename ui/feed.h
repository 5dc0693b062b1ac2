// A history as the page and the report show it: JSON with all measurements in columns, and what has changed since.
// The fields are described in docs/page.md.
//
// What the page derives (best so far, estimates over time, errors by kind) it computes from these rows by itself, so
// that a change is sent as the new rows alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "db/history.h"
#include "db/trials.h"

namespace diapason {

struct FeedOptions {
  // Measurements that are shown; of more, the newest ones and the best of each task.
  int64_t most = 200000;
};

// Not safe from several threads.
class HistoryFeed {
 public:
  // Reads the whole history. Errors: those of History::Open and of reading it.
  static absl::StatusOr<std::unique_ptr<HistoryFeed>> Open(const std::string& path, FeedOptions options = {});

  // "diapason.page.history/2": everything, as of version().
  Json Snapshot() const;
  // Counts the changes that Poll has found, from 1.
  uint64_t version() const { return version_; }

  struct Change {
    // Rows are gone, so that the page has to read the Snapshot again; `delta` is null.
    bool whole = false;
    Json delta;  // "diapason.page.change/2"
  };
  // What was stored since; nothing when there is nothing new. Cheap then. After an error the next call tries again.
  absl::StatusOr<std::optional<Change>> Poll();

  // A row of the history, for the page's other documents.
  History& history() { return *history_; }

 private:
  struct Row {
    TrialState state;
    int64_t run = 0, trial = 0, created_at = 0;
    int workload = 0, place = 0, sketch = 0, error = -1;  // indexes of the tables below
    std::optional<double> predicted;
  };
  // Sizes of the tables: what comes behind them is new.
  struct Mark {
    size_t workloads = 0, places = 0, sketches = 0, errors = 0, rows = 0;
  };
  // Texts with an index each, in the order in which they came.
  struct Names {
    std::map<std::string, int> index;
    Json list = Json::array();
    // `make` gives the JSON of a new one.
    template <typename Make>
    int Of(const std::string& name, const Make& make) {
      const auto [at, added] = index.emplace(name, static_cast<int>(list.size()));
      if (added) list.push_back(make());
      return at->second;
    }
  };

  HistoryFeed(std::unique_ptr<History> history, FeedOptions options)
      : history_(std::move(history)), options_(options) {}

  absl::Status Reload();
  absl::StatusOr<std::optional<Change>> ReadAgain();
  absl::StatusOr<std::optional<Change>> ReadChange();
  absl::Status ReadNetworks();
  absl::Status ReadRuns();
  absl::Status AddRow(const TrialRow& row);
  absl::StatusOr<int> WorkloadOf(const std::string& key, const std::string& name, int64_t record);
  int AddWorkload(const std::string& key, const std::string& name, const std::string& bytes);
  Mark Here() const;
  Json RowsFrom(size_t first) const;
  void AddTables(const Mark& from, Json& json) const;
  absl::StatusOr<Json> ApplyStates(const std::vector<TrialState>& states, bool* gone);

  const std::unique_ptr<History> history_;
  const FeedOptions options_;
  uint64_t version_ = 1;
  int64_t counter_ = -1;  // History::ChangeCounter of what was read
  bool reload_ = false;   // reading stopped half way
  int64_t total_ = 0;
  int64_t origin_ = 0;  // created_at that rows count from
  Names workloads_, places_, sketches_, errors_;
  Json networks_ = Json::array(), latencies_ = Json::array(), runs_ = Json::array();
  std::vector<Row> rows_;  // by id
};

}  // namespace diapason
