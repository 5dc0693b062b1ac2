// Tracker, workers and clients together, over gRPC on loopback.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <set>

#include "diapason/v1/tracker.pb.h"
#include "tests/worker/testing.h"
#include "worker/agent/agent.h"
#include "worker/client.h"
#include "worker/fleet_status.h"
#include "worker/rpc/channel.h"
#include "worker/tracker/server.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FleetTest : public testing::Test {
 protected:
  static Measurement Fake(int64_t id, const std::string& words = "") {
    static const auto workload = std::make_shared<const std::string>(SerializeDag(DoublingDag()));
    Measurement m;
    m.id = id;
    m.workload = workload;
    m.schedule = FakeSchedule(words);
    m.target = "cpu";
    m.min_repeat_ms = 0.1;
    m.race = false;
    return m;
  }
  // Results of `count` requests, by id; fails the test when they do not come.
  static std::map<int64_t, MeasurementResult> Collect(MeasureClient& client, size_t count, double seconds = 60) {
    std::map<int64_t, MeasurementResult> results;
    auto began = std::chrono::steady_clock::now();
    while (results.size() < count && SecondsSince(began) < seconds) {
      auto next = client.Next(1);
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok()) break;
      for (MeasurementResult& result : *next) {
        int64_t id = result.id;
        EXPECT_TRUE(results.emplace(id, std::move(result)).second) << "two results of " << id;
      }
    }
    EXPECT_EQ(results.size(), count);
    return results;
  }
  static bool Timed(const MeasurementResult& result) { return std::holds_alternative<Timing>(result.outcome); }

  std::unique_ptr<MeasureClient> Embedded() {
    EmbeddedOptions options;
    options.pipeline = FakeOptions(folder_);
    auto client = StartEmbedded(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  std::unique_ptr<WorkerAgent> Worker(const std::string& tracker, const std::string& name) {
    AgentOptions options;
    options.tracker = tracker;
    options.worker_id = options.name = name;
    options.pipeline = FakeOptions(folder_);
    options.pipeline.builders = 1;
    auto agent = WorkerAgent::Start(std::move(options));
    EXPECT_TRUE(agent.ok()) << agent.status();
    absl::Status registered = (*agent)->WaitUntilRegistered(20);
    EXPECT_TRUE(registered.ok()) << registered;
    return *std::move(agent);
  }
  void TearDown() override {
    EXPECT_TRUE(folder_.empty());
    EXPECT_THAT(Children(), IsEmpty());
  }

  TemporaryFolder folder_;
};

TEST_F(FleetTest, EmbeddedMeasures) {
  std::unique_ptr<MeasureClient> client = Embedded();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->slots(), 3);
  auto devices = client->Devices();
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ((*devices)[0].facts.model, "Fake 3000");
  Measurement verify = Fake(3);
  verify.mode = MeasurementMode::kVerify;
  ASSERT_TRUE(client->Submit({Fake(1), Fake(2, "kernel=crash"), verify, Fake(4, "kernel=wrong")}).ok());
  auto results = Collect(*client, 4);
  ASSERT_TRUE(Timed(results[1]));
  EXPECT_EQ(std::get<Timing>(results[1].outcome).samples.size(), 3u);
  EXPECT_EQ(results[1].worker, "local");
  EXPECT_EQ(results[1].device_model, "Fake 3000");
  EXPECT_EQ(results[1].device_uuid, "fake-uuid");
  EXPECT_EQ(results[1].driver, "fake driver 1");
  EXPECT_EQ(results[1].compiler, "fake 1.0");
  EXPECT_EQ(results[1].core_mhz, 1500);
  EXPECT_EQ(results[1].attempts, 1);
  EXPECT_FALSE(results[1].check.has_value());
  EXPECT_EQ(std::get<MeasureError>(results[2].outcome).kind, ErrorKind::kRunCrash);
  EXPECT_EQ(std::get<MeasureError>(results[2].outcome).stage, MeasureStage::kRun);
  ASSERT_TRUE(results[3].check.has_value());
  EXPECT_TRUE(results[3].check->ok);
  EXPECT_TRUE(std::get<Timing>(results[3].outcome).samples.empty());
  EXPECT_TRUE(Timed(results[4]));  // wrong, but nobody asked
  EXPECT_EQ(client->unfinished(), 0);
}

TEST_F(FleetTest, ManyRequestsFromManyThreads) {
  std::unique_ptr<MeasureClient> client = Embedded();
  ASSERT_NE(client, nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        std::vector<Measurement> batch;
        for (int j = 0; j < 10; ++j) {
          const int id = 1 + t * 100 + i * 10 + j;
          batch.push_back(Fake(id, "candidate" + std::to_string(id)));
        }
        ASSERT_TRUE(client->Submit(std::move(batch)).ok());
      }
    });
  }
  auto results = Collect(*client, 400);
  for (std::thread& thread : threads) thread.join();
  for (const auto& [id, result] : results) EXPECT_TRUE(Timed(result));
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // a heartbeat
  auto statistics = client->Statistics();
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ(statistics->runs, 400);
  EXPECT_EQ(statistics->builds, 400);
  EXPECT_EQ(statistics->builders, 2);
  EXPECT_GT(statistics->runner_busy_seconds, 0);
  EXPECT_LE(statistics->runner_utilisation(), 1);
}

TEST_F(FleetTest, CancelGivesEveryRequestAResult) {
  std::unique_ptr<MeasureClient> client = Embedded();
  ASSERT_NE(client, nullptr);
  std::vector<Measurement> batch;
  for (int id = 1; id <= 20; ++id) batch.push_back(Fake(id, "hang"));
  ASSERT_TRUE(client->Submit(std::move(batch)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  client->Cancel();
  auto results = Collect(*client, 20, 10);
  for (const auto& [id, result] : results) {
    EXPECT_TRUE(result.cancelled);
    EXPECT_EQ(std::get<MeasureError>(result.outcome).kind, ErrorKind::kInfrastructure);
    EXPECT_EQ(std::get<MeasureError>(result.outcome).text, "the coordinator cancelled it");
  }
}

TEST_F(FleetTest, StopsAtOnceWithWorkInProgress) {
  std::unique_ptr<MeasureClient> client = Embedded();
  ASSERT_NE(client, nullptr);
  std::vector<Measurement> batch;
  for (int id = 1; id <= 10; ++id) batch.push_back(Fake(id, id % 2 == 0 ? "hang" : "kernel=hang"));
  ASSERT_TRUE(client->Submit(std::move(batch)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  auto began = std::chrono::steady_clock::now();
  client.reset();
  EXPECT_LT(SecondsSince(began), 6);
}

TEST_F(FleetTest, EmbeddedSaysWhyItCannotStart) {
  EmbeddedOptions options;
  options.pipeline = FakeOptions(folder_);
  options.pipeline.devices = {"opencl -device=9"};
  EXPECT_EQ(StartEmbedded(std::move(options)).status(),
            absl::UnavailableError("the runner of 'opencl -device=9' does not start: there is no device 9"));
}

TEST_F(FleetTest, ALostWorkersWorkIsDoneElsewhere) {
  TrackerOptions options;
  options.heartbeat = std::chrono::milliseconds(100);
  options.session = std::chrono::milliseconds(1500);
  options.lease = std::chrono::milliseconds(2000);
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}}, options);
  ASSERT_TRUE(tracker.ok()) << tracker.status();
  auto a = Worker((*tracker)->address(), "a"), b = Worker((*tracker)->address(), "b");
  auto client = MeasureClient::Connect((*tracker)->address());
  ASSERT_TRUE(client.ok()) << client.status();
  std::vector<Measurement> batch;
  for (int id = 1; id <= 40; ++id) batch.push_back(Fake(id, "slow " + std::to_string(id)));  // each to be built
  ASSERT_TRUE((*client)->Submit(std::move(batch)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  a->Stop();
  auto results = Collect(**client, 40);
  for (const auto& [id, result] : results) EXPECT_TRUE(Timed(result)) << id;
  EXPECT_EQ(results[40].worker, "b");
  b->Stop();
}

TEST_F(FleetTest, KilledRunnersCostNothing) {
  std::unique_ptr<MeasureClient> client = Embedded();
  ASSERT_NE(client, nullptr);
  std::vector<Measurement> batch;
  for (int id = 1; id <= 30; ++id) {
    batch.push_back(Fake(id, "slow " + std::to_string(id)));
    batch.back().max_attempts = 10;
  }
  ASSERT_TRUE(client->Submit(std::move(batch)).ok());
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    std::vector<std::string> children = Children();
    if (!children.empty()) kill(std::atoi(children[i % children.size()].c_str()), SIGKILL);
  }
  for (const auto& [id, result] : Collect(*client, 30)) EXPECT_TRUE(Timed(result)) << id;
}

// What is lost with a runner or a device runs elsewhere; what takes those of two workers with it is to blame itself.
TEST_F(FleetTest, AResetDeviceIsNoLabelAndTwoLostOnesAreTheCandidates) {
  const std::string flag = folder_.path() + "/reset";
  setenv("DIAPASON_FAKE_RESET", flag.c_str(), 1);
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok()) << tracker.status();
  auto a = Worker((*tracker)->address(), "a"), b = Worker((*tracker)->address(), "b");
  auto client = MeasureClient::Connect((*tracker)->address());
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE(
      (*client)->Submit({Fake(1, "kernel=reset_once"), Fake(2, "kernel=reset"), Fake(3, "kernel=suicide")}).ok());
  const auto results = Collect(**client, 3);
  EXPECT_TRUE(std::filesystem::exists(flag));
  EXPECT_TRUE(Timed(results.at(1)));
  const auto blamed = [](const std::string& said) {
    return Outcome(MeasureError{ErrorKind::kRunCrash, MeasureStage::kRun,
                                "two workers lost their runners to it: worker 'a': " + said + "; worker 'b': " + said});
  };
  EXPECT_EQ(results.at(2).outcome, blamed("the driver was reset"));
  EXPECT_EQ(results.at(3).outcome, blamed("runner: the process died of signal 9 (Killed)"));
  // Both devices are in use again.
  ASSERT_TRUE((*client)->Submit({Fake(4), Fake(5), Fake(6), Fake(7)}).ok());
  for (const auto& [id, result] : Collect(**client, 4)) EXPECT_TRUE(Timed(result)) << id;
  a->Stop();
  b->Stop();
  unsetenv("DIAPASON_FAKE_RESET");
  std::filesystem::remove(flag);
}

// Two tuners that ask for the same at once: it is run once, and both get it.
TEST_F(FleetTest, TwoTunersShareWhatIsMeasured) {
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok()) << tracker.status();
  auto first = MeasureClient::Connect((*tracker)->address()), second = MeasureClient::Connect((*tracker)->address());
  ASSERT_TRUE(first.ok() && second.ok());
  std::vector<Measurement> batch;
  for (int id = 1; id <= 20; ++id) batch.push_back(Fake(id, "number" + std::to_string(id)));
  ASSERT_TRUE((*first)->Submit(batch).ok());
  auto worker = Worker((*tracker)->address(), "a");
  for (Measurement& m : batch) m.id += 1000;
  ASSERT_TRUE((*second)->Submit(batch).ok());
  const auto of_first = Collect(**first, 20), of_second = Collect(**second, 20);
  for (int id = 1; id <= 20; ++id) {
    ASSERT_TRUE(Timed(of_first.at(id)) && Timed(of_second.at(1000 + id))) << id;
    EXPECT_EQ(of_first.at(id).outcome, of_second.at(1000 + id).outcome) << id;
  }
  EXPECT_EQ(worker->pipeline().Statistics().runs(), 20u);
  worker->Stop();
}

// Workers and clients find a tracker that was restarted, and nothing is lost or doubled.
TEST_F(FleetTest, ARestartedTrackerLosesNothing) {
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok());
  std::string address = (*tracker)->address();
  auto worker = Worker(address, "a");
  auto client = MeasureClient::Connect(address);
  ASSERT_TRUE(client.ok());
  std::vector<Measurement> batch;
  for (int id = 1; id <= 20; ++id) batch.push_back(Fake(id, "slow"));
  ASSERT_TRUE((*client)->Submit(std::move(batch)).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  tracker->reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  tracker = TrackerServer::Start({address, {}});
  ASSERT_TRUE(tracker.ok()) << tracker.status();
  for (const auto& [id, result] : Collect(**client, 20)) EXPECT_TRUE(Timed(result)) << id;
  worker->Stop();
}

TEST_F(FleetTest, ATrackerThatStaysAwayEndsTheClient) {
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok());
  std::string address = (*tracker)->address();
  MeasureClientOptions options;
  options.give_up_seconds = 1;
  auto client = MeasureClient::Connect(address, options);
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE((*client)->Submit({Fake(1)}).ok());
  tracker->reset();
  auto results = (*client)->Next(20);
  ASSERT_TRUE(results.ok());
  ASSERT_EQ(results->size(), 1u);
  EXPECT_EQ(std::get<MeasureError>((*results)[0].outcome).kind, ErrorKind::kInfrastructure);
  absl::Status lost = (*client)->Next(1).status();
  EXPECT_EQ(lost, absl::UnavailableError("the tracker at '" + address +
                                         "' does not answer (Connection refused): start it with 'diapason tracker', or "
                                         "check the address and the network"));
  EXPECT_EQ((*client)->Submit({Fake(2)}), lost);
}

// As of two services of which one takes over from the other, and back.
TEST_F(FleetTest, OfSeveralAddressesTheOneThatAnswersIsUsed) {
  auto first = TrackerServer::Start({"127.0.0.1:0", {}}), second = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(first.ok() && second.ok());
  const std::string at_first = (*first)->address(), at_second = (*second)->address(), both = at_first + "," + at_second;
  first->reset();
  auto worker = Worker(both, "worker");
  MeasureClientOptions options;
  options.give_up_seconds = 60;
  auto client = MeasureClient::Connect(both, options);
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Submit({Fake(1)}).ok());
  EXPECT_TRUE(Timed(Collect(**client, 1)[1]));
  EXPECT_EQ(AskFleetStatus(both, 1).value().devices.size(), 1u);
  // What waits goes over as well.
  second->reset();
  ASSERT_FALSE(AskFleetStatus(both, 0.1).ok());
  first = TrackerServer::Start({at_first, {}});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE((*client)->Submit({Fake(2), Fake(3)}).ok());
  EXPECT_EQ(Collect(**client, 2).size(), 2u);
  EXPECT_EQ(AskFleetStatus(both, 1).value().devices.size(), 1u);
  worker->Stop();
  first->reset();
  EXPECT_EQ(AskFleetStatus(both, 0).status(),
            absl::UnavailableError("no tracker of '" + both + "' answers ('" + at_first +
                                   "' does not answer: Connection refused; '" + at_second +
                                   "' does not answer: Connection refused): start one with 'diapason tracker', or "
                                   "check the addresses and the network"));
}

TEST_F(FleetTest, APortInUseIsNamed) {
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok());
  EXPECT_EQ(TrackerServer::Start({(*tracker)->address(), {}}).status(),
            absl::UnavailableError("cannot listen on '" + (*tracker)->address() +
                                   "': the port is in use or the address is not of this host"));
}

// As `grpc_health_probe` and Kubernetes ask.
TEST_F(FleetTest, AnswersHealthChecks) {
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok());
  grpc::GenericStub stub(MakeChannel((*tracker)->address()));
  auto call = [&](const std::string& method) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    grpc::ByteBuffer answer;
    grpc::Status status;
    const grpc::Slice nothing;
    auto reader = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&nothing, 1), &queue);
    reader->StartCall();
    reader->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<grpc::Slice> slices;
    std::string bytes;
    if (status.ok() && answer.Dump(&slices).ok())
      for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return bytes;
  };
  EXPECT_EQ(call("/grpc.health.v1.Health/Check"), std::string("\x08\x01"));  // status: SERVING
}

// As `grpcurl list` asks. By hand: the messages of the reflection service are not among the headers of its library.
TEST_F(FleetTest, TellsItsServicesByReflection) {
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok());
  grpc::GenericStub stub(MakeChannel((*tracker)->address()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto stream = stub.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  stream->StartCall(nullptr);
  ASSERT_TRUE(done());
  const grpc::Slice list_services("\x3a\x01*");  // field 7, a text of one character
  stream->Write(grpc::ByteBuffer(&list_services, 1), nullptr);
  ASSERT_TRUE(done());
  grpc::ByteBuffer answer;
  stream->Read(&answer, nullptr);
  ASSERT_TRUE(done());
  std::vector<grpc::Slice> slices;
  std::string bytes;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  for (const grpc::Slice& slice : slices) bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  for (const char* service : {"diapason.v1.Measure", "diapason.v1.Tracker", "grpc.health.v1.Health",
                              "grpc.reflection.v1alpha.ServerReflection"}) {
    EXPECT_THAT(bytes, HasSubstr(service));
  }
  stream->WritesDone(nullptr);
  done();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  done();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(FleetTest, DrainFinishesWhatIsHeld) {
  auto tracker = TrackerServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(tracker.ok());
  auto worker = Worker((*tracker)->address(), "a");
  auto client = MeasureClient::Connect((*tracker)->address());
  ASSERT_TRUE(client.ok());
  ASSERT_TRUE((*client)->Submit({Fake(1, "slow"), Fake(2, "slow")}).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE(worker->Drain(20).ok());
  EXPECT_EQ(Collect(**client, 2).size(), 2u);
  worker->Stop();
}

}  // namespace
}  // namespace diapason
