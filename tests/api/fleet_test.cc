// Fleets by the public header: a tracker in this process, and a worker that nobody starts.
#include "diapason/fleet.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "worker/tracker/server.h"

namespace diapason::api {
namespace {

Endpoint At(const std::string& address) {
  Endpoint endpoint;
  endpoint.address = address;
  return endpoint;
}

TEST(Fleet, ATrackerSaysWhatItHas) {
  const auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok()) << tracker.status();
  const absl::StatusOr<FleetStatus> status = AskFleet(At((*tracker)->address()));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->models.empty() && status->devices.empty() && status->queues.empty());
  EXPECT_EQ(nlohmann::json::parse(FleetJson(*status)), nlohmann::json::parse(R"({"schema": "diapason.fleet/2",
            "device_models": [], "devices": [], "queues": []})"));
  const absl::Status serves = CheckHealth(At((*tracker)->address()));
  EXPECT_TRUE(serves.ok()) << serves;
}

TEST(Fleet, NobodyIsUnavailable) {
  const absl::Status silent = AskFleet(At("127.0.0.1:1"), 0.2).status();
  EXPECT_EQ(silent.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(silent.message().find("127.0.0.1:1"), std::string::npos) << silent;
  EXPECT_EQ(CheckHealth(At("127.0.0.1:1"), 0.2).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CheckHealth(At("127.0.0.1:1,127.0.0.1:2")).code(), absl::StatusCode::kInvalidArgument) << "one address";
  EXPECT_EQ(AskFleet(At("example.org:9190")).status().code(), absl::StatusCode::kPermissionDenied) << "plain text";
}

TEST(Fleet, DevicesDriftByMoreThanATenth) {
  FleetStatus::Device device;
  EXPECT_FALSE(device.drifts()) << "not known";
  for (const auto& [drift, drifts] : {std::pair{1.09, false}, {1.11, true}, {0.92, false}, {0.9, true}}) {
    device.drift = drift;
    EXPECT_EQ(device.drifts(), drifts) << drift;
  }
}

TEST(Fleet, JsonHasWhatIsKnown) {
  FleetStatus status;
  FleetStatus::Device& device = status.devices.emplace_back();
  device.worker = "w1";
  device.labels = {{"rack", "a"}};
  device.state = "quarantined";
  device.reason = "it hung";
  const nlohmann::json json = nlohmann::json::parse(FleetJson(status))["devices"][0];
  EXPECT_EQ(json["worker"], "w1");
  EXPECT_EQ(json["labels"], nlohmann::json({{"rack", "a"}}));
  EXPECT_EQ(json["reason"], "it hung");
  EXPECT_EQ(json["drift"], nullptr);
  EXPECT_EQ(json["drifts"], false);
}

}  // namespace
}  // namespace diapason::api
