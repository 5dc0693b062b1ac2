// Libraries of a target in the commands. No GPU is asked: records are made by hand, and NVRTC compiles without one.
#include "compiler/schedule/library.h"

#include "absl/strings/str_cat.h"
#include "compiler/codegen/codegen.h"
#include "compiler/graph/model.h"
#include "compiler/graph/partition.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "gmock/gmock.h"
#include "scheduler/candidate.h"
#include "scheduler/space.h"
#include "service/target.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTarget[] = "cuda -arch=sm_90 -libs=cublas,cudnn";
const std::vector<std::string> kConv = {"conv2d", "--h", "8", "--w", "8", "--ci", "8", "--co", "8", "--layout", "NCHW"};

std::vector<std::string> Args(const std::string& command, std::vector<std::string> rest) {
  std::vector<std::string> args = {command};
  args.insert(args.end(), kConv.begin(), kConv.end());
  args.insert(args.end(), rest.begin(), rest.end());
  return args;
}

TEST(Targets, LoseTheLibrariesThatAreMissing) {
  const Target target = Target::Parse(kTarget).value();
  std::vector<std::string> warnings;
  const auto no_cudnn = [](Library library) {
    return library == Library::kCudnn ? absl::UnavailableError("cuDNN is not on this machine; install it")
                                      : absl::OkStatus();
  };
  EXPECT_EQ(WithoutMissingLibraries(target, no_cudnn, &warnings).ToString(), "cuda -arch=sm_90 -libs=cublas");
  EXPECT_THAT(warnings,
              ElementsAre("target 'cuda -arch=sm_90 -libs=cublas,cudnn' names a library that cannot compete: cuDNN is "
                          "not on this machine; install it; tuning continues without it"));
  warnings.clear();
  EXPECT_EQ(WithoutMissingLibraries(
                target, [](Library) { return absl::OkStatus(); }, &warnings)
                .ToString(),
            kTarget);
  EXPECT_TRUE(warnings.empty());
}

class LibraryCommands : public CliTest {
 protected:
  // A verified record in which a library does a task's work.
  int64_t AddRecord(const std::string& sketch) {
    const auto tasks = Cli(Args("tasks", {"--target", kTarget, "--json"})).json()["tasks"];
    const Target target = Target::Parse(kTarget).value();
    ModelOptions options;
    options.layout = Layout::kNCHW;
    options.extra = {{"h", "8"}, {"w", "8"}, {"ci", "8"}, {"co", "8"}};
    const absl::StatusOr<Network> network = LoadOptimized("conv2d", options);
    EXPECT_TRUE(network.ok()) << network.status();
    const Task task = PartitionNetwork(*network)->tasks[0];
    EXPECT_EQ(task.workload_key, tasks[0]["workload"]);
    const auto spaces = TaskSpace::Create(task.dag, target, DefaultFacts(target)).value();
    const int index = spaces->Find(sketch);
    EXPECT_GE(index, 0) << sketch;
    const Schedule schedule = spaces->space(index).Instantiate(spaces->space(index).Default());
    TuningRecord record;
    record.workload_key = task.workload_key;
    record.workload = SerializeDag(task.dag);
    record.task_name = task.name;
    record.target = kTarget;
    record.device_model = ResolveTarget(kTarget).value().facts.model;  // of the GPU, where there is one
    record.rewrite = schedule.rewrite.ToString();
    record.sketch = sketch;
    record.schedule = SerializeSchedule(schedule);
    record.configuration = schedule.configuration;
    record.configuration_hash = CandidateHash(sketch, record.configuration);
    record.outcome = Timing{{2e-6, 2e-6, 2e-6}, 100, false, 0.1, 0.1};
    record.verified = Verified::kOk;
    auto history = History::Open(Path("h.db"), HistoryMode::kCreate).value();
    return history->Append({record}).value()[0];
  }
};

TEST_F(LibraryCommands, TasksListTheLibrarysSketches) {
  const auto names = Cli(Args("tasks", {"--target", kTarget, "--json"})).json()["tasks"][0]["sketch_names"];
  EXPECT_NE(std::find(names.begin(), names.end(), "library/cudnn"), names.end()) << names;
  const auto without =
      Cli(Args("tasks", {"--target", "cuda -arch=sm_90", "--json"})).json()["tasks"][0]["sketch_names"];
  EXPECT_EQ(std::find(without.begin(), without.end(), "library/cudnn"), without.end()) << without;
}

TEST_F(LibraryCommands, RecordsAreQueriedCheckedAndExplained) {
  const int64_t id = AddRecord("library/cudnn");
  const auto best = Cli({"query", "--history", Path("h.db"), "--json"}).json()["records"];
  ASSERT_EQ(best.size(), 1u);
  EXPECT_EQ(best[0]["algorithm"], "library");
  EXPECT_EQ(best[0]["sketch"], "library/cudnn");
  EXPECT_EQ(Cli({"history", "check", Path("h.db"), "--json"}).json()["ok"], true);
  const auto told = Cli({"explain", "--history", Path("h.db"), "--record", std::to_string(id), "--json"}).json();
  EXPECT_EQ(told["algorithm"], "library");
  EXPECT_EQ(told["configuration"][0]["name"], "algorithm");
  EXPECT_EQ(told["configuration"][0]["value"], 1);
  EXPECT_THAT(std::string(told["loops"]), HasSubstr("): cudnn convolution float32 NCHW 1x8x8x8 with 8 filters"));
  EXPECT_THAT(std::string(told["steps"]), HasSubstr("library stage "));
  EXPECT_FALSE(told.contains("problem")) << told["problem"];
  const CliResult text = Cli({"explain", "--history", Path("h.db"), "--record", std::to_string(id)});
  EXPECT_THAT(text.out, HasSubstr("sketch     library/cudnn, algorithm library\n"));
}

TEST_F(LibraryCommands, BuildsApplyThemAndSayWhatIsNeeded) {
  AddRecord("library/cudnn");
  const CliResult built =
      Cli(Args("build", {"--target", kTarget, "--history", Path("h.db"), "--out", Path("p"), "--json"}));
  if (built.err.find("no CUDA compiler") != std::string::npos) GTEST_SKIP() << built.err;
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(built.err, "");
  EXPECT_THAT(built.json()["libraries"], ElementsAre("cudnn"));
  EXPECT_EQ(std::string(built.json()["tasks"][0]["schedule"]).rfind("library/cudnn [", 0), 0u);
  const CliResult text = Cli(Args("build", {"--target", kTarget, "--history", Path("h.db"), "--out", Path("p")}));
  EXPECT_THAT(text.out, HasSubstr("1 with the best record, 0 with the fallback schedule"));
  EXPECT_THAT(text.out, HasSubstr("; needs cuDNN where it runs\n"));
  // A fallback schedule needs no library.
  const auto plain = Cli(Args("build", {"--target", kTarget, "--out", Path("q"), "--json"})).json();
  EXPECT_TRUE(plain["libraries"].empty());
}

}  // namespace
}  // namespace diapason
