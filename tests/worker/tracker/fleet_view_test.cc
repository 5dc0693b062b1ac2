// What people are told of a fleet: pages of workers, queues and models, and metrics.
#include "worker/tracker/fleet_view.h"

#include <map>
#include <string>
#include <vector>

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

using FleetViewTest = PartsTest;

TEST_F(FleetViewTest, PagesHaveEverythingOnce) {
  for (const std::string name : {"b", "a"}) AddSession(name);
  Submit(AddQueue("q"), 1);
  std::vector<std::string> seen;
  std::string page;
  do {
    v1::ListWorkersResponse response;
    ASSERT_TRUE(view_.List(page, /*most_bytes=*/1, response).ok());
    for (const auto& worker : response.workers()) seen.push_back("worker " + worker.name());
    for (const auto& queue : response.queues()) seen.push_back("queue " + queue.name());
    for (const auto& model : response.models()) seen.push_back("model " + model.model());
    page = response.next_page();
  } while (!page.empty());
  EXPECT_EQ(seen, (std::vector<std::string>{"worker a", "worker b", "queue q", "model H200"}));
  v1::ListWorkersResponse response;
  EXPECT_EQ(view_.List("x", 1, response).message(), "ListWorkersRequest.page is none that this tracker gave");
}

TEST_F(FleetViewTest, MetricsCountWhatWaits) {
  Queue& queue = AddQueue("q");
  for (uint64_t id = 1; id <= 2; ++id) Submit(queue, id);
  Grants(AddSession("w"), 1);
  std::map<std::string, double> numbers;
  for (const Metric& metric : view_.Metrics())
    numbers[metric.name] = metric.values.empty() ? 0 : metric.values[0].number;
  EXPECT_EQ(numbers.at("diapason_tracker_requests_pending"), 1);
  EXPECT_EQ(numbers.at("diapason_tracker_requests_leased"), 1);
  EXPECT_EQ(numbers.at("diapason_tracker_leases_total"), 1);
}

}  // namespace
}  // namespace diapason::tracker
