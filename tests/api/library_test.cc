// libdiapason: a small network from tasks to a package, with progress, cancellation and errors.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "diapason/compiler.h"
#include "diapason/history.h"
#include "diapason/model.h"
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
