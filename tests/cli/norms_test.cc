// Normalizations behind products, or in kernels of their own: which of them commands take. No GPU is asked: records are
// made by hand, and NVRTC compiles without one.
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/graph/fusion_choices.h"
#include "compiler/graph/model.h"
#include "compiler/graph/passes.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "scheduler/candidate.h"
#include "scheduler/space.h"
#include "service/target.h"
#include "tests/cli/process.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHopper[] = "cuda -arch=sm_90";
constexpr char kSums[] = "_sums";  // in names of tasks behind which norms are
constexpr int64_t kSequence = 33;
const std::map<std::string, std::string> kSizes = {{"layers", "1"},         {"hidden", "64"}, {"heads", "2"},
                                                   {"intermediate", "128"}, {"seq", "33"},    {"vocab", "31"}};

std::vector<std::string> WithModel(const std::string& command, std::vector<std::string> rest) {
  std::vector<std::string> args = {command, "bert-base", "--dtype", "float16"};
  for (const auto& [name, value] : kSizes) args.insert(args.end(), {"--set", absl::StrCat(name, "=", value)});
  args.insert(args.end(), rest.begin(), rest.end());
  return args;
}

class NormsOfNetworks : public CliTest {
 protected:
  // A history with a verified record of each task that the network has with its norms there, but for those of tasks
  // with `without` in their names.
  std::string HistoryOf(Norms norms, const std::string& without = "none") {
    const ResolvedTarget target = ResolveTarget(kHopper).value();
    ModelOptions options;
    options.dtype = DType::kFloat16;
    options.extra = {kSizes.begin(), kSizes.end()};
    Network network = LoadOptimized("bert-base", options).value();
    EXPECT_EQ(DeferNorms(network, norms == Norms::kDeferred ? kSequence : 0), norms == Norms::kDeferred ? 1 : 0);
    EXPECT_TRUE(EliminateDeadCode(network).ok());
    const std::string path = Path(absl::StrCat(NameOf(norms), "_", without, ".db"));
    auto history = History::Open(path, HistoryMode::kCreate).value();
    const FusionChoices fusion = FindFusionChoices(network, PreferredFusion(target)).value();
    for (const Task& task : fusion.partition.tasks) {
      if (task.weight == 0 || task.name.find(without) != std::string::npos) continue;
      const auto spaces = TaskSpace::Create(task.dag, target.target, target.facts).value();
      const Space& space = spaces->space(0);
      const Schedule schedule = space.Instantiate(space.Default());
      TuningRecord record;
      record.workload_key = task.workload_key;
      record.workload = SerializeDag(task.dag);
      record.task_name = task.name;
      record.target = kHopper;
      record.device_model = target.facts.model;  // of the GPU, where there is one
      record.rewrite = schedule.rewrite.ToString();
      record.sketch = space.name();
      record.schedule = SerializeSchedule(schedule);
      record.configuration = schedule.configuration;
      record.configuration_hash = CandidateHash(record.sketch, record.configuration);
      record.outcome = Timing{{2e-6, 2e-6, 2e-6}, 100, false, 0.1, 0.1};
      record.verified = Verified::kOk;
      EXPECT_TRUE(history->Append({record}).ok());
    }
    return path;
  }

  // Whether norms are deferred in the package that is built from these histories.
  bool Defers(const std::string& target, const std::vector<std::string>& histories) {
    std::vector<std::string> rest = {"--target",     target,     "--out", Path("p"), "--no-shipped-records",
                                     "--no-measure", "--refine", "0"};
    for (const std::string& history : histories) rest.insert(rest.end(), {"--history", history});
    const CliResult built = Cli(WithModel("build", rest));
    EXPECT_EQ(built.code, 0) << built.err;
    warned_ = built.err;
    return ReadText(Path("p/manifest.json")).find(kSums) != std::string::npos;
  }

  std::string warned_;
};

TEST_F(NormsOfNetworks, BuildsTakeTheFormThatIsTuned) {
  const std::string deferred = HistoryOf(Norms::kDeferred), apart = HistoryOf(Norms::kApart);
  EXPECT_TRUE(Defers(kHopper, {deferred}));
  EXPECT_EQ(warned_, "");
  EXPECT_FALSE(Defers(kHopper, {apart}));
  EXPECT_EQ(warned_, "");
  EXPECT_TRUE(Defers(kHopper, {apart, deferred}));
  const std::string most = HistoryOf(Norms::kDeferred, "gelu");
  EXPECT_TRUE(Defers(kHopper, {most})) << "more than of the other form";
  EXPECT_FALSE(Defers(kHopper, {most, apart}));
  EXPECT_FALSE(Defers(kHopper, {})) << "fallback schedules of the other form take longer";
}

TEST_F(NormsOfNetworks, TargetsSayWhichFormIsTaken) {
  const std::string deferred = HistoryOf(Norms::kDeferred);
  EXPECT_FALSE(Defers(absl::StrCat(kHopper, " -norms=apart"), {deferred}));
  EXPECT_THAT(warned_, HasSubstr("no verified record"));
  EXPECT_TRUE(Defers(absl::StrCat(kHopper, " -norms=deferred"), {deferred}));
  EXPECT_EQ(warned_, "") << "records do not depend on it";
  const auto tasks = [](const std::string& target) { return Cli(WithModel("tasks", {"--target", target})).out; };
  EXPECT_THAT(tasks(kHopper), HasSubstr(kSums)) << "what a tune tunes";
  EXPECT_THAT(tasks(absl::StrCat(kHopper, " -norms=apart")), Not(HasSubstr(kSums)));
  EXPECT_THAT(tasks("cuda -arch=sm_80"), Not(HasSubstr(kSums)));
  EXPECT_THAT(tasks("cuda -arch=sm_80 -norms=deferred"), HasSubstr(kSums));
}

}  // namespace
}  // namespace diapason
