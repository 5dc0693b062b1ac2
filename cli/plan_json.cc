#include "cli/plan_json.h"

#include <cmath>

namespace diapason {

Json CheckJson(const api::NetworkCheck& check) {
  Json wrong = Json::array();
  for (const api::NetworkCheck::WrongRecord& one : check.wrong_records) {
    wrong.push_back({{"record", one.record},
                     {"task", one.task},
                     {"text", one.text},
                     {"replacement", one.replacement.has_value() ? Json(*one.replacement) : Json(nullptr)}});
  }
  // JSON has no infinity.
  const Json error = std::isfinite(check.max_rel_error) ? Json(check.max_rel_error) : Json(nullptr);
  const Json run = check.latency_us.has_value() ? Json(*check.latency_us) : Json(nullptr);
  return {{"ok", check.ok},     {"max_rel_error", error}, {"elapsed_s", check.elapsed_s},
          {"text", check.text}, {"latency_us", run},      {"wrong_records", wrong}};
}

Json PaddingJson(const api::Padding& padding) {
  return {{"safe", padding.safe},
          {"min_size", padding.safe ? Json(padding.min_size) : Json(nullptr)},
          {"reason", padding.reason}};
}

}  // namespace diapason
