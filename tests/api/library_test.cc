// libdiapason: a small network from tasks to a package, with progress, cancellation and errors.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "diapason/compiler.h"
#include "diapason/history.h"
#include "diapason/inspect.h"
#include "diapason/model.h"
#include "diapason/profile.h"
#include "diapason/run.h"
#include "diapason/tuner.h"
#include "tests/paths.h"

namespace diapason::api {
namespace {

constexpr char kTarget[] = "cpu -num-cores=1";

class Library : public testing::Test {
 protected:
  void SetUp() override {
    SetProgram(TEST_PATH(DIAPASON_PROGRAM));  // this one reads no models
    std::string name = testing::TempDir() + "/diapason_api_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ / name; }

  static Model Gemm() {
    Model model;
    model.source = "gemm";
    model.options = {{"m", "32"}, {"n", "48"}, {"k", "64"}};
    return model;
  }

  TuneOptions Tuning(int64_t trials) const {
    TuneOptions options;
    options.model = Gemm();
    options.target = kTarget;
    options.history = Path("h.db");
    options.trials = trials;
    options.min_repeat_ms = 1;
    return options;
  }

  std::filesystem::path folder_;
};

TEST_F(Library, FromTasksToAPackage) {
  const absl::StatusOr<TaskList> list = Tasks(Gemm(), kTarget);
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->tasks.size(), 1u);
  EXPECT_EQ(list->tasks[0].id, 1);
  EXPECT_EQ(list->tasks[0].flops, 2 * 32 * 48 * 64);

  int64_t told = 0;
  TuneOptions tuning = Tuning(4);
  tuning.progress = [&](const Progress& progress) { told = progress.trials; };
  const absl::StatusOr<TuneResult> tuned = Tune(tuning);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_TRUE(tuned->check_status.ok()) << tuned->check_status;
  EXPECT_FALSE(tuned->cancelled);
  EXPECT_EQ(tuned->progress.trials, 4);
  EXPECT_EQ(told, 4);
  EXPECT_EQ(tuned->progress.built, 4);
  EXPECT_TRUE(tuned->progress.ended);
  EXPECT_EQ(tuned->progress.tasks_us, tuned->progress.tasks[0].best_us);
  EXPECT_FALSE(tuned->workers.has_value()) << "nobody asked";
  ASSERT_EQ(tuned->checks.size(), 1u);
  EXPECT_TRUE(tuned->checks[0].ok);

  const auto history = History::Open(Path("h.db"));
  ASSERT_TRUE(history.ok()) << history.status();
  RecordQuery query;
  query.network = "gemm";
  const auto records = (*history)->Query(query);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 1u);
  EXPECT_TRUE((*records)[0].verified());
  EXPECT_EQ((*records)[0].workload, list->tasks[0].workload);
  EXPECT_EQ((*records)[0].id, tuned->progress.tasks[0].record);

  BuildOptions building;
  building.model = Gemm();
  building.target = kTarget;
  building.out = Path("package");
  building.histories = {Path("h.db")};
  std::vector<std::string> warnings;
  building.hooks.warn = [&](const std::string& sentence) { warnings.push_back(sentence); };
  const absl::StatusOr<BuildReport> built = Build(building);
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_TRUE(warnings.empty()) << warnings[0];
  ASSERT_EQ(built->plans.size(), 1u);
  EXPECT_EQ(built->plans[0].fallback_count, 0);
  EXPECT_EQ(built->plans[0].tasks[0].record, (*records)[0].id);
  ASSERT_TRUE(built->plans[0].check.has_value());
  EXPECT_TRUE(built->plans[0].check->ok);
  EXPECT_TRUE(std::filesystem::exists(Path("package/manifest.json")));
}

TEST_F(Library, TuningThatIsStoppedKeepsWhatItMeasuredAndGoesOn) {
  std::atomic<bool> stop{false};
  TuneOptions options = Tuning(100000);
  options.hooks.stop = &stop;
  options.progress = [&](const Progress& progress) { stop = progress.measured >= 2; };
  const absl::StatusOr<TuneResult> first = Tune(options);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->cancelled);
  EXPECT_TRUE(first->checks.empty());
  const int64_t measured = first->progress.trials;
  EXPECT_GE(measured, 2);
  TuneOptions more = Tuning(measured + 2);
  more.check = false;
  const absl::StatusOr<TuneResult> second = Tune(more);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->progress.trials, measured + 2);
  EXPECT_LE(second->progress.measured, 2);
}

TEST_F(Library, TheStartIsToldOnceAndItsErrorEndsTheCall) {
  TuneOptions options = Tuning(2);
  options.check = false;
  options.count_workers = true;
  int starts = 0;
  options.on_start = [&] {
    ++starts;
    EXPECT_TRUE(std::filesystem::exists(Path("h.db")));
    return absl::OkStatus();
  };
  const absl::StatusOr<TuneResult> tuned = Tune(options);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(starts, 1);
  ASSERT_TRUE(tuned->workers.has_value());
  EXPECT_EQ(tuned->workers->devices, 1);
  EXPECT_GE(tuned->workers->runs, 2);
  options.on_start = [] { return absl::ResourceExhaustedError("not now"); };
  EXPECT_EQ(Tune(options).status(), absl::ResourceExhaustedError("not now"));
}

TEST_F(Library, AlgorithmsThatAreLeftOutAreNotTried) {
  TuneOptions options = Tuning(6);
  options.check = false;
  options.without = {"strassen"};
  options.shipped_records = false;
  const absl::StatusOr<TuneResult> tuned = Tune(options);
  ASSERT_TRUE(tuned.ok()) << tuned.status();
  EXPECT_EQ(tuned->progress.tasks[0].algorithm.find("strassen"), std::string::npos);
  options.without = {"magic"};
  EXPECT_EQ(Tune(options).status(),
            absl::InvalidArgumentError("--without has 'magic', which is no algorithm that can be left out; name one or "
                                       "more of attention,gemm,halves,padded,rows,strassen,winograd"));
}

TEST_F(Library, ATrackerThatDoesNotAnswerIsNamed) {
  TuneOptions options = Tuning(2);
  options.fleet.tracker.address = "127.0.0.1:1";
  options.fleet.wait_seconds = 0.1;
  const absl::Status silent = Tune(options).status();
  EXPECT_EQ(silent.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(silent.message().find("127.0.0.1:1"), std::string::npos) << silent;
  options.fleet.tracker.address = "192.0.2.1:9190";
  EXPECT_EQ(Tune(options).status(),
            absl::PermissionDeniedError(
                "--tracker 192.0.2.1:9190 would speak plain text beyond this host; give --tls-cert, --tls-key and "
                "--tls-ca, or add --insecure if every host that can reach it is trusted"));
  Endpoint service;
  service.address = "nowhere";
  EXPECT_EQ(QueryService(service, {}).status(),
            absl::InvalidArgumentError(
                "--service nowhere is not understood; write it as HOST:PORT, for example 127.0.0.1:9190"));
}

TEST_F(Library, APackageIsRunCheckedComparedAndProfiled) {
  BuildOptions building;
  building.model = Gemm();
  building.target = kTarget;
  building.out = Path("package");
  building.check = false;
  ASSERT_TRUE(Build(building).ok());
  EXPECT_TRUE(IsPackage(Path("package")));
  EXPECT_TRUE(IsPackage("none.dpk"));
  EXPECT_FALSE(IsPackage("model.onnx"));

  RunOptions options;
  options.package = Path("package");
  options.output_dir = Path("outputs");
  options.check = true;
  options.bench = BenchOptions{1, 0.01, 3, 2, 1};
  const absl::StatusOr<std::vector<PlanRun>> runs = api::Run(options);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 1u);
  const PlanRun& run = runs->front();
  ASSERT_EQ(run.outputs.size(), 1u);
  EXPECT_EQ(run.outputs[0].shape, (std::vector<int64_t>{32, 48}));
  ASSERT_TRUE(run.check.has_value() && run.bench.has_value());
  EXPECT_TRUE(run.check->ok) << run.check->worst;
  EXPECT_GE(run.bench->latency.runs, 3);
  EXPECT_LE(run.bench->latency.p50_us, run.bench->latency.p99_us);
  EXPECT_EQ(run.bench->samples_us.size(), 2u);

  const std::string output = run.outputs[0].name, file = Path("outputs/" + output + ".npy");
  RunOptions again;
  again.package = Path("package");
  again.compare = {{output, file}};
  const auto same = api::Run(again);
  ASSERT_TRUE(same.ok()) << same.status();
  ASSERT_EQ(same->front().comparisons.size(), 1u);
  EXPECT_TRUE(same->front().comparisons[0].errors.ok);
  again.seed = 7;
  const auto other = api::Run(again);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE(other->front().comparisons[0].errors.ok);
  EXPECT_GT(other->front().comparisons[0].differing, 0);

  ProfileOptions profiling;
  profiling.package = Path("package");
  profiling.seconds = 0.01;
  profiling.warm_up_ms = 1;
  const absl::StatusOr<PackageProfile> profile = Profile(profiling);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->target, kTarget);
  double flops = 0;
  for (const ProfiledKernel& kernel : profile->plans.at(0).kernels) flops += kernel.flops.value_or(0);
  EXPECT_GE(flops, 2 * 32 * 48 * 64);

  const absl::StatusOr<ExportedKernels> exported = ExportKernels({Path("package"), {}, Path("c"), "product"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_TRUE(std::filesystem::exists(Path("c/product.h")));
}

TEST_F(Library, BuiltinNetworksAndDevicesAreListed) {
  for (const BuiltinNetwork& network : Networks()) {
    if (network.name != "gemm") continue;
    EXPECT_EQ(network.options.empty(), false);
    EXPECT_EQ(SizesText({{"batch", 1}, {"seq", 16}}), "batch=1 seq=16");
    const auto device = FindDevice(kTarget);
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ(device->target, kTarget);
    EXPECT_FALSE(device->title.empty());
    return;
  }
  FAIL() << "there is no network gemm";
}

TEST_F(Library, ACallThatIsToStopDoesNotReadTheModel) {
  const std::atomic<bool> stop{true};
  BuildOptions options;
  options.model = Gemm();
  options.target = kTarget;
  options.out = Path("package");
  options.hooks.stop = &stop;
  EXPECT_EQ(Build(options).status(), absl::CancelledError("stopped while the model was read"));
  EXPECT_FALSE(std::filesystem::exists(Path("package")));
}

TEST_F(Library, ErrorsNameWhatIsWrong) {
  Model model = Gemm();
  model.layout = "HWC";
  EXPECT_EQ(Tasks(model, kTarget).status(), absl::InvalidArgumentError("the layout is 'HWC'; give NHWC or NCHW"));
  TuneOptions options = Tuning(1);
  options.sandbox = "maybe";
  EXPECT_EQ(Tune(options).status(), absl::InvalidArgumentError("sandbox is 'maybe'; give auto, on or off"));
  BuildOptions building;
  building.build_timeout_seconds = 0;
  EXPECT_EQ(Build(building).status(), absl::InvalidArgumentError("the build timeout is 0; give seconds above 0"));
  building = {};
  building.refine_seconds = -1;
  EXPECT_EQ(Build(building).status(),
            absl::InvalidArgumentError("the time to refine is -1; give 0 for none, or seconds"));
  EXPECT_FALSE(std::filesystem::exists(Path("h.db")));
  EXPECT_TRUE(absl::IsNotFound(History::Open(Path("h.db")).status()));
}

TEST_F(Library, AProgramThatIsNotThereIsNamed) {
  SetProgram(Path("none"));
  const absl::Status status = Tasks(Gemm(), kTarget).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(Path("none")), std::string::npos) << status;
}

}  // namespace
}  // namespace diapason::api
