#include "cli/check_report.h"

#include <cmath>

namespace diapason {

nlohmann::ordered_json CheckJson(const NetworkCheckReport& report) {
  using Json = nlohmann::ordered_json;
  Json wrong = Json::array();
  for (const NetworkCheckReport::Wrong& one : report.wrong) {
    wrong.push_back({{"record", one.record.id},
                     {"task", one.record.task_name},
                     {"text", one.evidence},
                     {"replaced_by", one.replacement >= 0 ? Json(one.replacement) : Json(nullptr)}});
  }
  // JSON has no infinity.
  const Json error = std::isfinite(report.max_rel_error) ? Json(report.max_rel_error) : Json(nullptr);
  const Json run = report.run_seconds > 0 ? Json(report.run_seconds * 1e6) : Json(nullptr);
  return {{"ok", report.right}, {"max_rel_error", error}, {"seconds", report.seconds}, {"text", report.text}, {"latency_us", run}, {"wrong_records", wrong}};
}

}  // namespace diapason
