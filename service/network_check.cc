#include "service/network_check.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "service/find_guilty.h"
#include "service/records.h"

namespace diapason {
namespace {

// Replacements may be of the same kind as what they replace, and fail in turn.
constexpr int kMostRounds = 12;
// Records of a task that are verified in search of one that is right.
constexpr int kMostVerifications = 5;
// A wrong result that does not come again is asked for so often.
constexpr int kConfirmations = 2;

class Checker {
 public:
  Checker(const Network& network, const FusionChoices& fusion, RecordShelf& shelf, NetworkJudge& judge)
      : network_(network), fusion_(fusion), shelf_(shelf), judge_(judge) {}

  absl::StatusOr<NetworkCheckReport> Run() {
    const auto began = std::chrono::steady_clock::now();
    absl::Status status = Rounds();
    RETURN_IF_ERROR(status);
    for (NetworkCheckReport::Wrong& wrong : report_.wrong) FindReplacement(wrong);
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return std::move(report_);
  }

 private:
  using Verdict = NetworkJudge::Verdict;

  absl::Status Rounds() {
    for (int round = 0; round < kMostRounds; ++round) {
      ASSIGN_OR_RETURN(const RecordsByWorkload records, BestRecords());
      ASSIGN_OR_RETURN(report_.assembly, Assemble(network_, fusion_, records));
      RETURN_IF_ERROR(judge_.Use(report_.assembly));
      ASSIGN_OR_RETURN(const Verdict verdict, judge_.Judge(All(true)));
      report_.max_rel_error = verdict.max_rel_error;
      if (verdict.ok) {
        report_.right = true;
        report_.run_seconds = verdict.run_seconds;
        return absl::OkStatus();
      }
      ASSIGN_OR_RETURN(const bool marked, MarkGuilty(verdict));
      if (!marked) return absl::OkStatus();
    }
    report_.text = absl::StrCat(
        "the network still computes a wrong result after ", report_.wrong.size(),
        " records were marked; run the same command again to continue with the next best, and report a bug");
    return absl::OkStatus();
  }

  std::vector<bool> All(bool in_place) const {
    return std::vector<bool>(report_.assembly.partition.tasks.size(), in_place);
  }

  // The best of each workload, verified if that is possible.
  absl::StatusOr<RecordsByWorkload> BestRecords() {
    ASSIGN_OR_RETURN(RecordsByWorkload records, shelf_.Best(KeysOfRecords(fusion_.partition.tasks)));
    for (auto& [key, record] : records) {
      for (int i = 0; i < kMostVerifications && record.verified == Verified::kUnknown; ++i) {
        const absl::StatusOr<Verdict> verdict = judge_.Verify(record);
        if (absl::IsUnimplemented(verdict.status())) break;
        RETURN_IF_ERROR(verdict.status());
        RETURN_IF_ERROR(shelf_.SetVerified(record, *verdict));
        ASSIGN_OR_RETURN(RecordsByWorkload next, shelf_.Best({key}));
        if (!next.contains(key)) break;
        record = std::move(next.at(key));
      }
    }
    return records;
  }

  // The tasks that have a record: what may be guilty.
  std::vector<int> Suspects() const {
    std::vector<int> tasks;
    for (size_t i = 0; i < report_.assembly.records.size(); ++i)
      if (report_.assembly.records[i].has_value()) tasks.push_back(static_cast<int>(i));
    return tasks;
  }

  // False, with the reason in the report, when nobody is to blame.
  absl::StatusOr<bool> MarkGuilty(const Verdict& first) {
    const std::vector<int> suspects = Suspects();
    std::map<int, Verdict> evidence;  // by suspect: the last wrong verdict with it in place
    Verdict last = first;
    const IsWrong is_wrong = [&](const std::vector<bool>& suspects_in_place) -> absl::StatusOr<bool> {
      std::vector<bool> in_place = All(false);
      for (size_t i = 0; i < suspects.size(); ++i) in_place[suspects[i]] = suspects_in_place[i];
      ASSIGN_OR_RETURN(const Verdict verdict, judge_.Judge(in_place));
      if (verdict.ok) return false;
      last = verdict;
      for (size_t i = 0; i < suspects.size(); ++i)
        if (suspects_in_place[i]) evidence[static_cast<int>(i)] = verdict;
      return true;
    };
    const absl::StatusOr<std::vector<int>> guilty =
        FindGuilty(static_cast<int>(suspects.size()), is_wrong, kConfirmations);
    if (absl::IsFailedPrecondition(guilty.status())) {
      report_.text =
          last.compared
              ? absl::StrCat(
                    "the network computes a wrong result with fallback schedules alone, so that no record is to blame "
                    "(",
                    last.text, "); report a bug")
              : absl::StrCat("the network cannot be checked, with fallback schedules alone neither (", last.text,
                             "); leave the check out with --no-check, and compare with results of your own by "
                             "`diapason run --compare`");
      return false;
    }
    RETURN_IF_ERROR(guilty.status());
    if (guilty->empty() && !first.compared)
      return absl::UnavailableError(
          absl::StrCat("the network could not be run once and ran another time (", first.text, ")"));
    if (guilty->empty()) {
      report_.text = absl::StrCat("the network computed a wrong result once and not again (", first.text,
                                  "), so that no record was marked; run the same command again, and report a bug");
      return false;
    }
    for (int index : *guilty) {
      const TuningRecord& record = *report_.assembly.records[suspects[index]];
      const Verdict& verdict = evidence[index];
      const std::string text = absl::StrCat("network ", network_.name, ": ", verdict.text);
      RETURN_IF_ERROR(shelf_.MarkWrongInNetwork(record, verdict.max_abs_error, text));
      report_.wrong.push_back({record, verdict.text, -1});
    }
    return true;
  }

  // What the task takes at last.
  void FindReplacement(NetworkCheckReport::Wrong& wrong) const {
    const std::vector<Task>& tasks = report_.assembly.partition.tasks;
    for (size_t i = 0; i < tasks.size(); ++i)
      if ((tasks[i].workload_key == wrong.record.workload_key || tasks[i].unbounded_key == wrong.record.workload_key) &&
          report_.assembly.records[i].has_value())
        wrong.replacement = report_.assembly.records[i]->id;
  }

  const Network& network_;
  const FusionChoices& fusion_;
  RecordShelf& shelf_;
  NetworkJudge& judge_;
  NetworkCheckReport report_;
};

}  // namespace

absl::StatusOr<RecordsByWorkload> HistoryShelf::Best(const std::vector<std::string>& workload_keys) {
  return RecordsForBuild(*history_, workload_keys, device_model_, target_);
}

absl::Status HistoryShelf::SetVerified(const TuningRecord& record, const NetworkJudge::Verdict& verdict) {
  return history_->SetVerified(record.id, verdict.ok, verdict.max_abs_error, verdict.text);
}

absl::Status HistoryShelf::MarkWrongInNetwork(const TuningRecord& record, double max_error,
                                              const std::string& evidence) {
  return history_->MarkWrongInNetwork(record.id, max_error, evidence);
}

std::string NetworkCheckReport::Wrong::Sentence() const {
  return absl::StrCat("record ", record.id, " of ", record.task_name,
                      " is right alone but makes the network compute a wrong result, and is not used: ", evidence, "; ",
                      replacement < 0 ? std::string("the fallback schedule takes its place")
                                      : absl::StrCat("record ", replacement, " takes its place"));
}

std::string Summary(const NetworkCheckReport& report) {
  if (!report.right) return absl::StrCat("network check FAILED: ", report.text);
  std::string text = absl::StrFormat("network check ok: largest relative error %.3g", report.max_rel_error);
  if (!report.wrong.empty())
    absl::StrAppend(&text, ", after ", report.wrong.size(), report.wrong.size() == 1 ? " record was" : " records were",
                    " replaced");
  return text;
}

absl::StatusOr<NetworkCheckReport> CheckNetwork(const Network& network, const FusionChoices& fusion, RecordShelf& shelf,
                                                NetworkJudge& judge) {
  return Checker(network, fusion, shelf, judge).Run();
}

}  // namespace diapason
