#include "api/check.h"

#include <optional>

namespace diapason::api {

NetworkCheck CheckOf(const NetworkCheckReport& report, const SymbolSizes& sizes) {
  NetworkCheck check;
  check.sizes = sizes;
  check.ok = report.right;
  check.max_rel_error = report.max_rel_error;
  check.elapsed_s = report.seconds;
  check.text = report.text;
  if (report.run_seconds > 0) check.latency_us = report.run_seconds * 1e6;
  for (const NetworkCheckReport::Wrong& one : report.wrong) {
    check.wrong_records.push_back({one.record.id, one.record.task_name, one.evidence,
                                   one.replacement >= 0 ? std::optional<int64_t>(one.replacement) : std::nullopt,
                                   one.Sentence()});
  }
  check.summary = Summary(report);
  return check;
}

std::vector<NetworkCheck> ChecksOf(const std::vector<PlanCheck>& checks) {
  std::vector<NetworkCheck> list;
  for (const PlanCheck& check : checks) list.push_back(CheckOf(check.report, check.sizes));
  return list;
}

std::map<std::string, Padding> PaddingOf(const std::map<std::string, SymbolPadding>& padding) {
  std::map<std::string, Padding> found;
  for (const auto& [symbol, one] : padding) found[symbol] = {one.why_not.empty(), one.least, one.why_not};
  return found;
}

}  // namespace diapason::api
