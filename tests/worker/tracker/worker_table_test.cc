// The registry of workers: who may register, and what devices serve.
#include "worker/tracker/worker_table.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

using WorkerTableTest = PartsTest;

TEST_F(WorkerTableTest, AGpuHasOneOwner) {
  AddSession("a");
  v1::RegisterRequest other = Worker("b");
  EXPECT_TRUE(workers_.Check(other).ok());
  other.mutable_devices(0)->mutable_facts()->set_uuid("uuid of a");
  EXPECT_EQ(workers_.Check(other).message(),
            "device 'cuda:0' (uuid of a) of worker 'b' is registered by worker 'a' already: stop one of them, or give "
            "them different devices");
}

TEST_F(WorkerTableTest, ADeviceServesWhileItIsWell) {
  Session& session = AddSession("a");
  EXPECT_EQ(workers_.Serving(kClass), 1u);
  EXPECT_EQ(workers_.Serving("cuda\n"), 1u);
  workers_.SetDeviceState(session, "cuda:0", v1::DEVICE_STATE_QUARANTINED);
  EXPECT_EQ(workers_.Serving(kClass), 0u);
  workers_.SetDeviceState(session, "cuda:0", v1::DEVICE_STATE_READY);
  EXPECT_EQ(workers_.Serving(kClass), 1u);
  session.excluded.insert("cuda:0");
  workers_.RefreshDevices(session);
  EXPECT_EQ(workers_.Serving(kClass), 0u);
}

TEST_F(WorkerTableTest, AWorkerInQuarantineServesNothing) {
  const Quarantines::Fault fault{1, now_ + std::chrono::seconds(9), "it lied"};
  EXPECT_EQ(workers_.Add("s", Worker("a"), &fault).quarantine_text, "it lied");
  EXPECT_EQ(workers_.Serving(kClass), 0u);
}

TEST_F(WorkerTableTest, OneThatIsRemovedServesNothing) {
  AddSession("a");
  EXPECT_EQ(workers_.FindWorker("a"), workers_.Find("a"));
  EXPECT_EQ(workers_.Remove("a")->status.name(), "a");
  EXPECT_EQ(workers_.Serving(kClass), 0u);
  EXPECT_EQ(workers_.Remove("a"), nullptr);
}

}  // namespace
}  // namespace diapason::tracker
