// What a measurement on one device tells while another device of the same host measures too: the best record of each
// task of a history, timed on the first device with the other at rest and at work, in turns.
//
//   two_runners HISTORY TARGET TARGET [CANDIDATES]      two devices: "cuda -device=0" "cuda -device=1"; default: 18
//
// Prints JSON: how the median times differ, and how much those of two passes alone differ, which is what the difference
// is to be held against. The builders are a worker's, and what they compile meanwhile is part of it.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/runtime/outcome.h"
#include "compiler/tensor/target.h"
#include "db/history.h"
#include "diapason/v1/measure.pb.h"
#include "worker/pipeline/pipeline.h"
#include "worker/process/child_process.h"
#include "worker/process/convert.h"
#include "worker/process/processes.h"

namespace diapason {
namespace {

constexpr int kRounds = 2;   // each: alone, beside, beside, alone
constexpr int kBesides = 3;  // requests that the other device has at once, so that one is built while another runs

using Medians = std::map<std::string, double>;  // seconds by candidate

// A device that measures without end, one request after the other, until it is asked to stop.
class Neighbour {
 public:
  Neighbour(Pipeline& pipeline, const std::vector<v1::MeasureRequest>& requests)
      : pipeline_(pipeline), requests_(requests) {
    for (int i = 0; i < kBesides; ++i) Next();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return measured_ > 0; });
  }
  // Waits until it is at rest.
  ~Neighbour() {
    std::unique_lock lock(mutex_);
    stop_ = true;
    changed_.wait(lock, [&] { return under_way_ == 0; });
  }
  int measured() {
    std::lock_guard lock(mutex_);
    return measured_;
  }

 private:
  void Next() {
    const v1::MeasureRequest* request = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return;
      ++under_way_;
      request = &requests_[next_++ % requests_.size()];
    }
    pipeline_.Submit(1, *request, [this](const v1::MeasureResult&) {
      Next();
      std::lock_guard lock(mutex_);
      --under_way_;
      ++measured_;
      changed_.notify_all();
    });
  }

  Pipeline& pipeline_;
  const std::vector<v1::MeasureRequest>& requests_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  size_t next_ = 0;
  int under_way_ = 0, measured_ = 0;
  bool stop_ = false;
};

// One pass over all candidates on the first device. DataLoss when one fails.
absl::StatusOr<Medians> Pass(Pipeline& pipeline, const std::vector<v1::MeasureRequest>& requests,
                             const std::vector<std::string>& names) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<v1::MeasureResult> results;
  for (const v1::MeasureRequest& request : requests) {
    pipeline.Submit(0, request, [&](const v1::MeasureResult& result) {
      std::lock_guard lock(mutex);
      results.push_back(result);
      changed.notify_all();
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return results.size() == requests.size(); });
  Medians medians;
  for (const v1::MeasureResult& result : results) {
    const std::string& name = names[result.id() - 1];
    if (!result.has_timing()) return absl::DataLossError(name + " is not measured: " + result.error().text());
    medians[name] = MedianSeconds(FromProto(result.timing()));
  }
  return medians;
}

absl::StatusOr<std::vector<TuningRecord>> Candidates(const std::string& path, const std::string& kind, int64_t most) {
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(path, HistoryMode::kReadOnly));
  RecordFilter filter;
  filter.target = kind;
  ASSIGN_OR_RETURN(std::vector<TuningRecord> records, history->TopK(filter, 1));
  if (records.empty()) return absl::NotFoundError(path + " holds no measured record of " + kind);
  if (static_cast<int64_t>(records.size()) > most) records.resize(static_cast<size_t>(most));
  return records;
}

v1::MeasureRequest RequestOf(const TuningRecord& record, uint64_t id) {
  v1::MeasureRequest request;
  request.set_id(id);
  request.set_workload(record.workload);
  request.set_schedule(record.schedule);
  request.set_target(record.target);
  request.set_mode(v1::MEASURE_MODE_TIME);
  request.mutable_timing()->set_repeat(5);
  request.mutable_timing()->set_min_repeat_ms(50);
  return request;
}

// Of the share by which `b` differs from `a`: the median and the largest, and where that is.
nlohmann::ordered_json Difference(const Medians& a, const Medians& b) {
  std::vector<std::pair<double, std::string>> shares;
  for (const auto& [name, seconds] : a) shares.emplace_back(std::abs(b.at(name) / seconds - 1), name);
  std::sort(shares.begin(), shares.end());
  return {{"median", shares[shares.size() / 2].first}, {"largest", shares.back().first}, {"of", shares.back().second}};
}

// The median of several passes, candidate by candidate.
Medians Middle(const std::vector<Medians>& passes) {
  Medians middle;
  for (const auto& [name, unused] : passes[0]) {
    std::vector<double> values;
    for (const Medians& pass : passes) values.push_back(pass.at(name));
    std::sort(values.begin(), values.end());
    const size_t half = values.size() / 2;
    middle[name] = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  }
  return middle;
}

absl::Status Run(const std::string& history, const std::vector<std::string>& targets, int64_t most) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(targets[0]));
  ASSIGN_OR_RETURN(const std::vector<TuningRecord> records,
                   Candidates(history, target.ToString().substr(0, target.ToString().find(' ')), most));
  std::vector<v1::MeasureRequest> requests;
  std::vector<std::string> names;
  for (const TuningRecord& record : records) {
    requests.push_back(RequestOf(record, requests.size() + 1));
    names.push_back(absl::StrCat(record.task_name, " (record ", record.id, ")"));
  }
  PipelineOptions options;
  options.devices = targets;
  ASSIGN_OR_RETURN(const std::unique_ptr<Pipeline> pipeline, Pipeline::Start(options));

  std::vector<Medians> alone, beside;
  int neighbours = 0;
  const auto pass_alone = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(alone.emplace_back(), Pass(*pipeline, requests, names));
    return absl::OkStatus();
  };
  const auto pass_beside = [&]() -> absl::Status {
    Neighbour neighbour(*pipeline, requests);
    ASSIGN_OR_RETURN(beside.emplace_back(), Pass(*pipeline, requests, names));
    neighbours += neighbour.measured();
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(Pass(*pipeline, requests, names).status());  // clocks rise, caches of compilers fill
  for (int round = 0; round < kRounds; ++round) {
    RETURN_IF_ERROR(pass_alone());
    RETURN_IF_ERROR(pass_beside());
    RETURN_IF_ERROR(pass_beside());
    RETURN_IF_ERROR(pass_alone());
  }
  const nlohmann::ordered_json report = {
      {"candidates", requests.size()},
      {"measured_beside", neighbours},
      {"difference", Difference(Middle(alone), Middle(beside))},
      {"alone_again", Difference(Middle({alone[0], alone[1]}), Middle({alone[2], alone[3]}))},
  };
  std::puts(report.dump(2).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  // As its own pipeline starts it, for builders and runners.
  if (!words.empty() && words[0] == "internal-builder") return diapason::BuilderMain(diapason::kChildSocket);
  if (words.size() == 5 && words[0] == "internal-runner")
    return diapason::RunnerMain(diapason::kChildSocket, diapason::Target::Parse(words[4]).value());
  if (words.size() < 3) {
    std::fprintf(stderr, "error: give HISTORY and the targets of two devices\n");
    return 2;
  }
  const absl::Status status =
      diapason::Run(words[0], {words[1], words[2]}, words.size() > 3 ? std::max(1, std::atoi(words[3].c_str())) : 18);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}
