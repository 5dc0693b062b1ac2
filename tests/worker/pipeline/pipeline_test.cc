#include "worker/pipeline/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/base/config.h"
#include "diapason/v1/tracker.pb.h"
#include "tests/worker/testing.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PipelineTest : public testing::Test {
 protected:
  void Start() { Start(FakeOptions(folder_)); }
  void Start(const PipelineOptions& options) {
    auto pipeline = Pipeline::Start(options);
    ASSERT_TRUE(pipeline.ok()) << pipeline.status();
    pipeline_ = *std::move(pipeline);
  }
  uint64_t Submit(const v1::MeasureRequest& request) { return pipeline_->Submit(0, request, box_.Taker()); }
  v1::MeasureResult Measure(const std::string& words) {
    uint64_t id = next_id_++;
    Submit(FakeRequest(id, words));
    return box_.Wait(id);
  }
  void ExpectWorks() { EXPECT_TRUE(Measure("").has_timing()); }
  void TearDown() override {
    if (pipeline_ != nullptr) pipeline_->Stop();
    EXPECT_TRUE(folder_.empty());
    EXPECT_THAT(Children(), IsEmpty());
  }

  TemporaryFolder folder_;
  ResultBox box_;
  std::unique_ptr<Pipeline> pipeline_;
  uint64_t next_id_ = 1000;
};

TEST_F(PipelineTest, TimesACandidate) {
  Start();
  ASSERT_EQ(pipeline_->devices().size(), 1u);
  EXPECT_EQ(pipeline_->devices()[0].name(), "cpu:0");
  EXPECT_EQ(pipeline_->devices()[0].facts().model(), "Fake 3000");
  v1::MeasureResult result = Measure("");
  ASSERT_TRUE(result.has_timing()) << result.DebugString();
  ASSERT_EQ(result.timing().samples_size(), 3);
  EXPECT_DOUBLE_EQ(result.timing().samples(0), 1e-4);
  EXPECT_EQ(result.on().device(), "cpu:0");
  EXPECT_EQ(result.on().model(), "Fake 3000");
  EXPECT_EQ(result.on().uuid(), "fake-uuid");
  EXPECT_EQ(result.on().driver(), "fake driver 1");
  EXPECT_EQ(result.on().clocks().core_mhz(), 1500);
  EXPECT_EQ(result.compiler(), "fake 1.0");
  EXPECT_EQ(result.registers(0), 32);
  EXPECT_GT(result.timing().build_seconds(), 0);
  EXPECT_LE(result.times().build_started_at(), result.times().build_ended_at());
  EXPECT_LE(result.times().build_ended_at(), result.times().run_started_at());
  EXPECT_LE(result.times().run_started_at(), result.times().run_ended_at());
}

struct FaultCase {
  std::string words;
  std::string kind, stage, text;
};

// A fault of a builder or runner is an error of that candidate and the next one works.
TEST_F(PipelineTest, TurnsFaultsIntoErrors) {
  PipelineOptions options = FakeOptions(folder_);
  options.build_timeout_seconds = 3;
  options.run_timeout_seconds = 3;
  Start(options);
  const FaultCase cases[] = {
      {"crash", "build_crash", "compile", "builder: the process died of signal 11 (Segmentation fault)"},
      {"abort", "build_crash", "compile",
       "builder: the process died of signal 6 (Aborted): assertion failed on purpose"},
      {"exit", "build_crash", "compile", "builder: the process exited with status 3: giving up on purpose"},
      {"hang", "build_timeout", "compile", "not built within 3 s"},
      {"refuse", "compile", "compile", "line 7: no such thing"},
      {"suicide", "infrastructure", "compile", "builder: the process died of signal 9 (Killed)"},
      {"kernel=crash", "run_crash", "run", "runner: the process died of signal 11 (Segmentation fault)"},
      {"kernel=late", "run_crash", "run", "runner: the process died of signal 11 (Segmentation fault)"},
      {"kernel=load_crash", "run_crash", "load", "runner: the process died of signal 11 (Segmentation fault)"},
      {"kernel=hang", "run_timeout", "run", "not finished within 3 s"},
      {"kernel=suicide", "infrastructure", "run", "runner: the process died of signal 9 (Killed)"},
      {"kernel=reset", "infrastructure", "run", "the driver was reset"},
      {"kernel=lose", "illegal_access", "run", "illegal memory access at 0x10"},
      {"kernel=refuse_load", "launch_failure", "load", "too many registers"},
      {"kernel=skip", "wrong_result", "run",
       "element 0 of output 'y' was not written, or came from memory that was not"},
      {"kernel=nan", "wrong_result", "run", "element 2 of output 'y' is no finite number"},
      // 16 multiplications on a device of 1e9 a second, of which three times as many are believed: 16 ns / 3.
      {"kernel=fast", "wrong_result", "run", "a sample of 1e-06 us, where the device cannot be done before 0.00533 us"},
  };
  for (const FaultCase& c : cases) {
    auto began = std::chrono::steady_clock::now();
    v1::MeasureResult result = Measure(c.words);
    EXPECT_LT(SecondsSince(began), 10) << c.words;
    ASSERT_TRUE(result.has_error()) << c.words << " " << result.DebugString();
    EXPECT_EQ(result.error().kind(), c.kind) << c.words;
    EXPECT_EQ(result.error().stage(), c.stage) << c.words;
    EXPECT_EQ(result.error().text(), c.text) << c.words;
    ExpectWorks();
  }
}

TEST_F(PipelineTest, BuildersGiveWay) {
  Start();
  EXPECT_EQ(Measure("niceness").error().text(), std::to_string(std::min(19, getpriority(PRIO_PROCESS, 0) + 5)));
}

TEST_F(PipelineTest, ProcessesHaveASessionOfTheirOwnAndNoNewPrivileges) {
  Start();
  ExpectWorks();
  const std::vector<std::string> children = Children();
  EXPECT_GE(children.size(), 2u);  // a builder and a runner
  for (const std::string& child : children) {
    const pid_t pid = std::atoi(child.c_str());
    EXPECT_EQ(getsid(pid), pid);
    EXPECT_EQ(getpgid(pid), pid);
    // A process does so first of all, but one of them may be newer than that.
    std::string status;
    const auto found = [&] { return status.find("\nNoNewPrivs:\t1\n") != std::string::npos; };
    for (int i = 0; i < 1000 && !found(); ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::ifstream file("/proc/" + std::to_string(pid) + "/status");
      status.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    EXPECT_TRUE(found()) << status;
  }
}

TEST_F(PipelineTest, ReportsExceptionsWithTheirText) {
  Start();
  v1::MeasureResult result = Measure("throw");
  EXPECT_EQ(result.error().kind(), "build_crash");
  EXPECT_THAT(result.error().text(), HasSubstr("thrown on purpose"));
  ExpectWorks();
}

#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)  // they reserve more than any limit
TEST_F(PipelineTest, LimitsMemory) {
  PipelineOptions options = FakeOptions(folder_);
  options.builder_memory_bytes = options.runner_memory_bytes = int64_t{1} << 30;
  Start(options);
  v1::MeasureResult result = Measure("oom");
  EXPECT_EQ(result.error().kind(), "out_of_memory") << result.DebugString();
  EXPECT_EQ(result.error().stage(), "compile");
  EXPECT_EQ(result.error().text(), "builder: the process exited with status 86: out of memory");
  result = Measure("kernel=oom");
  EXPECT_EQ(result.error().kind(), "out_of_memory") << result.DebugString();
  EXPECT_EQ(result.error().stage(), "run");
  ExpectWorks();
}
#endif

TEST_F(PipelineTest, ReportsADeviceThatIsFull) {
  Start();
  Submit(FakeRequest(1, "", DoublingDag(int64_t{1} << 33)));
  v1::MeasureResult result = box_.Wait(1);
  EXPECT_EQ(result.error().kind(), "out_of_memory");
  EXPECT_EQ(result.error().stage(), "load");
}

TEST_F(PipelineTest, KillsWhatABuilderStarted) {
  PipelineOptions options = FakeOptions(folder_);
  options.build_timeout_seconds = 0.5;
  Start(options);
  v1::MeasureResult result = Measure("grandchild");
  EXPECT_EQ(result.error().kind(), "build_timeout");
  ExpectWorks();
  for (const std::string& child : Children()) EXPECT_THAT(child, testing::Not(HasSubstr("sleep")));
  // Its scratch folder is emptied for its successor, which may start later than the other builder worked.
  const auto littered = [&] {
    std::error_code vanished;  // folders come and go meanwhile
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path(), vanished))
      if (entry.path().filename() == "litter") return true;
    return false;
  };
  for (int i = 0; i < 100 && littered(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(littered());
}

// A crash while loading may be the fault of the program before: a fresh process decides.
TEST_F(PipelineTest, TriesALoadThatCrashedOnceMoreInAFreshProcess) {
  Start();
  ExpectWorks();
  EXPECT_TRUE(Measure("kernel=load_crash_unless_first").has_timing());
}

TEST_F(PipelineTest, BuildsGoOnWhileRunning) {
  Start();
  auto began = std::chrono::steady_clock::now();
  for (uint64_t id = 1; id <= 10; ++id) Submit(FakeRequest(id, "slow"));
  for (uint64_t id = 1; id <= 10; ++id) EXPECT_TRUE(box_.Wait(id).has_timing());
  // Ten builds of 0.2 s by two builders; far from the sum, also on a busy machine.
  EXPECT_LT(SecondsSince(began), 1.9);
  v1::WorkerStatistics statistics = pipeline_->Statistics();
  EXPECT_EQ(statistics.builds(), 10u);
  EXPECT_EQ(statistics.runs(), 10u);
  EXPECT_GT(statistics.builder_busy_seconds(), 1.7);  // the last may not be counted yet
  EXPECT_LT(statistics.builder_busy_seconds(), 4);
}

TEST_F(PipelineTest, AHangingCandidateDoesNotHoldUpTheOthers) {
  PipelineOptions options = FakeOptions(folder_);
  Start(options);
  v1::MeasureRequest hang = FakeRequest(1, "hang");
  hang.set_build_timeout_seconds(3);
  auto began = std::chrono::steady_clock::now();
  Submit(hang);
  for (uint64_t id = 2; id <= 6; ++id) Submit(FakeRequest(id, ""));
  for (uint64_t id = 2; id <= 6; ++id) EXPECT_TRUE(box_.Wait(id).has_timing());
  EXPECT_LT(SecondsSince(began), 2.9);
  EXPECT_EQ(box_.Wait(1).error().kind(), "build_timeout");
}

TEST_F(PipelineTest, ManyRequestsEachGetOneResult) {
  Start();
  constexpr uint64_t kRequests = 200;
  for (uint64_t id = 1; id <= kRequests; ++id) {
    Submit(FakeRequest(id, id % 20 == 0 ? "crash" : id % 20 == 1 ? "kernel=crash" : ""));
  }
  for (uint64_t id = 1; id <= kRequests; ++id) {
    v1::MeasureResult result = box_.Wait(id);
    EXPECT_EQ(result.has_error(), id % 20 < 2) << id << result.DebugString();
  }
  for (uint64_t id = 1; id <= kRequests; ++id) EXPECT_EQ(box_.count(id), 1u);
  EXPECT_EQ(pipeline_->Unfinished(0), 0);
}

TEST_F(PipelineTest, VerifiesAgainstTheReference) {
  Start();
  v1::MeasureRequest request = FakeRequest(1, "");
  request.set_mode(v1::MEASURE_MODE_VERIFY);
  Submit(request);
  v1::MeasureResult result = box_.Wait(1);
  ASSERT_TRUE(result.has_timing()) << result.DebugString();
  EXPECT_EQ(result.timing().samples_size(), 0);
  EXPECT_TRUE(result.verification().ok());
  EXPECT_EQ(result.verification().max_abs_error(), 0);

  request = FakeRequest(2, "kernel=wrong");
  request.set_mode(v1::MEASURE_MODE_TIME_AND_VERIFY);
  request.set_input_seed(1);
  Submit(request);
  result = box_.Wait(2);
  EXPECT_EQ(result.error().kind(), "wrong_result") << result.DebugString();
  EXPECT_EQ(result.error().stage(), "verify");
  EXPECT_THAT(result.error().text(), HasSubstr("'y' [2] is "));
  EXPECT_FALSE(result.verification().ok());
  EXPECT_NEAR(result.verification().max_abs_error(), 1, 1e-6);
  EXPECT_EQ(result.verification().text(), result.error().text());

  request = FakeRequest(3, "kernel=nan");
  request.set_mode(v1::MEASURE_MODE_VERIFY);
  Submit(request);
  result = box_.Wait(3);
  EXPECT_EQ(result.error().kind(), "wrong_result");
  EXPECT_TRUE(std::isinf(result.verification().max_abs_error()));
}

TEST_F(PipelineTest, AnOutputThatWasNotWrittenIsRefuted) {
  Start();
  v1::MeasureRequest request = FakeRequest(1, "kernel=skip");
  request.set_mode(v1::MEASURE_MODE_VERIFY);
  Submit(request);
  v1::MeasureResult result = box_.Wait(1);
  EXPECT_EQ(result.error().kind(), "wrong_result");
  ASSERT_TRUE(result.has_verification());
  EXPECT_FALSE(result.verification().ok());
  EXPECT_TRUE(std::isinf(result.verification().max_abs_error()));
  EXPECT_EQ(result.verification().text(), result.error().text());
}

TEST_F(PipelineTest, RacesAgainstTheBestKnown) {
  Start();
  v1::MeasureRequest request = FakeRequest(1, "kernel=slow");
  request.mutable_timing()->set_race(true);
  request.set_best_seconds(1e-4);
  Submit(request);
  EXPECT_TRUE(box_.Wait(1).timing().stopped_early());
  // The worker's own best counts as well.
  ExpectWorks();
  request.set_id(2);
  request.clear_best_seconds();
  Submit(request);
  EXPECT_TRUE(box_.Wait(2).timing().stopped_early());
  request.set_id(3);
  request.mutable_timing()->set_race(false);
  Submit(request);
  EXPECT_FALSE(box_.Wait(3).timing().stopped_early());
}

TEST_F(PipelineTest, DevicesOfAModelRaceAgainstEachOthersBest) {
  PipelineOptions options = FakeOptions(folder_);
  options.devices = {"opencl", "opencl -device=1"};
  Start(options);
  v1::MeasureRequest fast = FakeRequest(1, ""), slow = FakeRequest(2, "kernel=slow");
  for (v1::MeasureRequest* request : {&fast, &slow}) request->set_target("opencl");
  slow.mutable_timing()->set_race(true);
  pipeline_->Submit(0, fast, box_.Taker());
  EXPECT_EQ(box_.Wait(1).on().device(), "opencl:0");
  pipeline_->Submit(1, slow, box_.Taker());
  EXPECT_EQ(box_.Wait(2).on().device(), "opencl:1") << box_.Wait(2).DebugString();
  EXPECT_TRUE(box_.Wait(2).timing().stopped_early());
}

TEST_F(PipelineTest, CancelsWhatWaitsAndWhatRuns) {
  PipelineOptions options = FakeOptions(folder_);
  options.builders = 1;
  Start(options);
  uint64_t running = Submit(FakeRequest(1, "hang"));
  uint64_t waiting = Submit(FakeRequest(2, ""));
  pipeline_->Cancel(waiting, "not wanted");
  EXPECT_EQ(box_.Wait(2).cancelled().reason(), "not wanted");
  pipeline_->Cancel(running, "nor this");
  EXPECT_EQ(box_.Wait(1).cancelled().reason(), "nor this");
  EXPECT_EQ(pipeline_->Unfinished(0), 0);
}

TEST_F(PipelineTest, StopAnswersEverything) {
  Start();
  for (uint64_t id = 1; id <= 5; ++id) Submit(FakeRequest(id, "hang"));
  auto began = std::chrono::steady_clock::now();
  pipeline_->Stop();
  EXPECT_LT(SecondsSince(began), 3);
  for (uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(box_.Wait(id).cancelled().reason(), "the worker stops");
  Submit(FakeRequest(6, ""));
  EXPECT_EQ(box_.Wait(6).cancelled().reason(), "the worker stops");
}

TEST_F(PipelineTest, RefusesADeviceThatIsNotThere) {
  PipelineOptions options = FakeOptions(folder_);
  options.devices = {"opencl -device=9"};
  EXPECT_EQ(Pipeline::Start(options).status().message(),
            "the runner of 'opencl -device=9' does not start: there is no device 9");
  options.devices = {"opencl -device=8"};
  EXPECT_EQ(Pipeline::Start(options).status().message(),
            "the runner of 'opencl -device=8' does not start: the process died of signal 11 (Segmentation fault) while "
            "starting");
  options.devices = {"opencl -device=7"};
  options.start_timeout_seconds = 2;
  EXPECT_EQ(Pipeline::Start(options).status().message(),
            "the runner of 'opencl -device=7' does not start: the process did not start within 2 s");
  options.devices = {"cpu"};
  options.program_path = "/no/such/program";
  EXPECT_EQ(Pipeline::Start(options).status().message(),
            "the runner of 'cpu' does not start: cannot start '/no/such/program': No such file or directory");
  options.scratch_base = "/no/such/folder";
  EXPECT_EQ(
      Pipeline::Start(options).status().message(),
      "cannot make a scratch folder in '/no/such/folder' (No such file or directory): free some space or set TMPDIR "
      "to a folder that can be written");
  options = FakeOptions(folder_);
  options.devices = {};
  EXPECT_EQ(Pipeline::Start(options).status().message(),
            "a worker needs at least one device: name one, for instance 'cpu'");
}

TEST_F(PipelineTest, GivesUpBuildsWhenNoBuilderStarts) {
  PipelineOptions options = FakeOptions(folder_);
  options.builder_args = {"worker_tests", "--gtest_list_tests", "--gtest_filter=none"};  // exits at once
  Start(options);
  v1::MeasureResult result = Measure("");
  EXPECT_EQ(result.error().kind(), "infrastructure");
  EXPECT_EQ(result.error().stage(), "queue");
  EXPECT_THAT(result.error().text(), HasSubstr("no builder starts: the process exited with status 0 while starting"));
}

TEST_F(PipelineTest, RefusesBytesThatAreNoProgram) {
  Start();
  v1::MeasureRequest request = FakeRequest(1, "");
  request.set_workload("no dag");
  Submit(request);
  EXPECT_EQ(box_.Wait(1).error().kind(), "instantiation");
  request = FakeRequest(2, "");
  request.set_schedule("\xff\xff");
  Submit(request);
  EXPECT_EQ(box_.Wait(2).error().kind(), "instantiation");
  request = FakeRequest(3, "");
  request.set_target("abacus");
  Submit(request);
  EXPECT_EQ(box_.Wait(3).error().kind(), "instantiation");
  EXPECT_EQ(box_.Wait(3).error().stage(), "queue");
  ExpectWorks();
}

// Builders are stopped while the host's cores are timed; their deadline stops with them.
TEST_F(PipelineTest, QuietTimingDoesNotEatTheBuildDeadline) {
  PipelineOptions options = FakeOptions(folder_);
  options.build_timeout_seconds = 1;
  options.run_timeout_seconds = 3;
  options.builders = 1;
  Start(options);
  Submit(FakeRequest(1, "kernel=hang"));  // quiet for 3 s
  for (uint64_t id = 2; id <= 6; ++id) Submit(FakeRequest(id, "slow"));
  EXPECT_EQ(box_.Wait(1).error().kind(), "run_timeout");
  for (uint64_t id = 2; id <= 6; ++id) EXPECT_TRUE(box_.Wait(id).has_timing()) << box_.Wait(id).DebugString();
}

TEST_F(PipelineTest, BuildersStandStillWhileTheHostsCoresAreTimed) {
  PipelineOptions options = FakeOptions(folder_);
  options.run_timeout_seconds = 3;
  auto stopped = [] {
    std::vector<std::string> children = Children();
    return std::count_if(children.begin(), children.end(),
                         [](const std::string& c) { return c.find(" T ") != std::string::npos; });
  };
  for (bool quiet : {true, false}) {
    options.quiet_timing = quiet;
    Start(options);
    const uint64_t id = quiet ? 1 : 2;
    Submit(FakeRequest(id, "kernel=hang"));
    const auto began = std::chrono::steady_clock::now();
    int64_t most = 0;
    while (box_.count(id) == 0 && SecondsSince(began) < 20) {
      most = std::max<int64_t>(most, stopped());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(most, quiet ? 2 : 0);
    EXPECT_EQ(stopped(), 0);
  }
}

// However many wait for it and however many builders there are.
TEST_F(PipelineTest, ADeviceHasOneMeasurementAtATime) {
  Start();
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (uint64_t id = 1; id <= 12; ++id) Submit(FakeRequest(id, "kernel=slow"));
  for (uint64_t id = 1; id <= 12; ++id) {
    const v1::MeasureResult result = box_.Wait(id);
    ASSERT_TRUE(result.has_timing()) << result.DebugString();
    runs.emplace_back(result.times().run_started_at(), result.times().run_ended_at());
  }
  std::sort(runs.begin(), runs.end());
  for (size_t i = 1; i < runs.size(); ++i) EXPECT_LE(runs[i - 1].second, runs[i].first);
}

TEST_F(PipelineTest, ReplacesBuildersAfterSomeJobs) {
  PipelineOptions options = FakeOptions(folder_);
  options.jobs_per_builder = 2;
  options.builders = 1;
  Start(options);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Measure("candidate" + std::to_string(i)).has_timing());
  EXPECT_GE(pipeline_->Statistics().builder_restarts(), 2u);
}

// A confirmation or a verification asks for what was built as a candidate.
TEST_F(PipelineTest, WhatWasBuiltIsNotBuiltAgain) {
  Start();
  const v1::MeasureResult first = Measure("again"), second = Measure("again");
  EXPECT_EQ(pipeline_->Statistics().builds(), 1u);
  EXPECT_EQ(pipeline_->Statistics().runs(), 2u);
  ASSERT_TRUE(second.has_timing());
  EXPECT_EQ(second.compiler(), first.compiler());
  EXPECT_EQ(second.timing().build_seconds(), first.timing().build_seconds());
  EXPECT_LE(second.times().build_started_at(), second.times().build_ended_at());
  // With another seed or mode it is the same program; with another schedule another.
  v1::MeasureRequest verified = FakeRequest(100, "again");
  verified.set_mode(v1::MEASURE_MODE_VERIFY);
  Submit(verified);
  EXPECT_TRUE(box_.Wait(100).verification().ok());
  EXPECT_EQ(pipeline_->Statistics().builds(), 2u);  // the reference program
  EXPECT_TRUE(Measure("other").has_timing());
  EXPECT_EQ(pipeline_->Statistics().builds(), 3u);
}

TEST_F(PipelineTest, WhatFailedToBuildIsTriedAgain) {
  Start();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Measure("refuse").error().kind(), "compile");
  EXPECT_EQ(pipeline_->Statistics().builds(), 2u);
}

TEST_F(PipelineTest, SurvivesRandomKills) {
  Start();
  constexpr uint64_t kRequests = 60;
  for (uint64_t id = 1; id <= kRequests; ++id) Submit(FakeRequest(id, id % 2 == 0 ? "slow" : ""));
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::vector<std::string> children = Children();
    if (!children.empty()) kill(std::atoi(children[i % children.size()].c_str()), SIGKILL);
  }
  for (uint64_t id = 1; id <= kRequests; ++id) {
    v1::MeasureResult result = box_.Wait(id, 60);
    EXPECT_TRUE(result.has_timing() || result.error().kind() == "infrastructure") << result.DebugString();
  }
}

}  // namespace
}  // namespace diapason
