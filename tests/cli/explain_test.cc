// Candidates of tasks that were chosen by hand. Records are explained in end_to_end_test.cc.
#include <gmock/gmock.h>

#include "tests/cli/testing.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kCuda[] = "cuda -arch=sm_90";

CliResult Explain(const std::vector<std::string>& more) {
  std::vector<std::string> args = OnSmallProduct("explain", {"--task", "1"});
  args[9] = kCuda;
  args.insert(args.end(), more.begin(), more.end());
  return Cli(args);
}

TEST(ExplainTask, NeedsNeitherAHistoryNorTheDevice) {
  const CliResult shown = Explain({});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.err, "");
  EXPECT_THAT(shown.out, StartsWith("task       gemm_32x48x64\n"));
  for (const char* part : {"\ncomputation\nx: float32[32, 64]", "\nsketches\n", "\nsteps\n", "\nfeatures (",
                           "\nloops\nkernel k_", "\nsource\n", "__global__"})
    EXPECT_THAT(shown.out, HasSubstr(part));
  EXPECT_THAT(shown.out, Not(HasSubstr("measured")));
}

TEST(ExplainTask, ShowsTheRewriteOfTheSketchAndTheValuesThatAreGiven) {
  const CliResult shown =
      Explain({"--sketch", "direct/tile", "--parameter", "i0.threads=8", "--show", "configuration"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, StartsWith("configuration\n  i0.threads = 8\n"));
  EXPECT_THAT(shown.out, Not(HasSubstr("steps")));
  const CliResult rewritten = Cli({"explain", "conv2d", "--target", kCuda, "--task", "1", "--sketch", "gemm/tile",
                                   "--show", "rewrite,computation"});
  ASSERT_EQ(rewritten.code, 0) << rewritten.err;
  EXPECT_THAT(rewritten.out, HasSubstr("\nrewrite\n"));
}

TEST(ExplainTask, JsonHasTheSketchesAndNothingOfARecord) {
  const auto json = Explain({"--json"}).json();
  EXPECT_EQ(json["record"], nullptr);
  EXPECT_EQ(json["measurement"], nullptr);
  EXPECT_EQ(json["task"], "gemm_32x48x64");
  ASSERT_GT(json["sketches"].size(), 1u);
  EXPECT_GT(json["sketches"][0]["analytic_us"], 0);
  for (size_t i = 1; i < json["sketches"].size(); ++i)
    EXPECT_LE(json["sketches"][i - 1]["analytic_us"], json["sketches"][i]["analytic_us"]) << i;
}

TEST(ExplainTask, ErrorsNameWhatThereIs) {
  std::vector<std::string> args = OnSmallProduct("explain", {"--task", "2"});
  ExpectError(Cli(args), "there is no task '2'; give a number from 1 to 1, or a name, of `diapason tasks`");
  const CliResult sketch = Explain({"--sketch", "direct/tlie"});
  EXPECT_THAT(sketch.err,
              StartsWith("error: the task has no sketch 'direct/tlie'; did you mean 'direct/tile'? it has "));
  const CliResult name = Explain({"--sketch", "direct/tile", "--parameter", "i0.thread=8"});
  EXPECT_THAT(name.err, StartsWith("error: the sketch direct/tile has no parameter 'i0.thread'; did you mean "
                                   "'i0.threads'? it has "));
  const CliResult value = Explain({"--sketch", "direct/tile", "--parameter", "i0.threads=7"});
  EXPECT_THAT(value.err, StartsWith("error: --parameter i0.threads=7 is not legal here; give "));
  ExpectError(Explain({"--parameter", "unroll"}),
              "--parameter unroll is not understood; write NAME=VALUE with a whole number");
  ExpectError(Cli({"explain", "gemm", "--target", kCuda}),
              "a candidate of MODEL needs --target and --task; `diapason tasks` lists the tasks");
}

}  // namespace
}  // namespace diapason
