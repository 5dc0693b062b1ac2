// The pages of Tracker.ListWorkers as one answer, for .cc files that speak gRPC.
#pragma once

#include "absl/status/status.h"
#include "base/check.h"
#include "diapason/v1/tracker.pb.h"

namespace diapason {

// `call(request, response)` asks for one page. Its errors; ResourceExhausted when there is no end of pages.
template <typename Call>
absl::Status ListAllWorkers(const Call& call, v1::ListWorkersResponse& all) {
  constexpr int kMostPages = 4096;
  v1::ListWorkersRequest request;
  all.Clear();
  for (int i = 0; i < kMostPages; ++i) {
    v1::ListWorkersResponse page;
    RETURN_IF_ERROR(call(request, page));
    request.set_page(page.next_page());
    all.MergeFrom(page);
    all.clear_next_page();
    if (request.page().empty()) return absl::OkStatus();
  }
  return absl::ResourceExhaustedError("the tracker's list of workers has no end");
}

}  // namespace diapason
