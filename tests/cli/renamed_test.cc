#include "cli/renamed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/testing.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Renamed, OldFlagsMeanTheNewOnesWithAWarning) {
  const CurrentArguments current = ReplaceOldNames({"jobs", "list", "--service", "h:1", "--give-up=3"});
  EXPECT_THAT(current.args, ElementsAre("jobs", "list", "--service", "h:1", "--timeout=3"));
  EXPECT_THAT(current.warnings,
              ElementsAre("--give-up is deprecated and will be removed in the next release; use --timeout"));
}

TEST(Renamed, AFlagIsReplacedOnlyInTheCommandsThatHadIt) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"submit", "gemm", "--wait"}, {"worker", "--labels", "rack=a"}, {"run", "--running"}}) {
    const CurrentArguments current = ReplaceOldNames(args);
    EXPECT_EQ(current.args, args);
    EXPECT_THAT(current.warnings, IsEmpty());
  }
}

// The flag became an attribute of another flag's value: both say what the target cannot be.
TEST(Renamed, AFlagThatIsNowAnAttributeOfTheTarget) {
  const std::vector<std::string> tune = {"tune", "gemm", "--history", "h.db", "--trials", "1"};
  std::vector<std::string> old_name = tune, new_name = tune;
  old_name.insert(old_name.end(), {"--target", "cpu -caches=warm", "--flush-l2"});
  new_name.insert(new_name.end(), {"--target", "cpu -caches=warm -caches=flushed"});
  const CliResult with_old = Cli(old_name), with_new = Cli(new_name);
  EXPECT_EQ(with_old.code, with_new.code);
  EXPECT_EQ(with_old.err,
            "warning: --flush-l2 is deprecated and will be removed in the next release; use --target \"TARGET "
            "-caches=flushed\"\n" +
                with_new.err);
  EXPECT_THAT(with_new.err, HasSubstr("-caches"));
  EXPECT_THAT(Cli({"tune", "--help"}).out, Not(HasSubstr("flush-l2")));
}

TEST(Renamed, ConfigurationFilesMayHaveOldKeys) {
  EXPECT_EQ(CurrentKey({"jobs", "watch"}, "give-up"), "timeout");
  EXPECT_EQ(CurrentKey({"fleet", "status"}, "wait"), "wait-timeout");
  EXPECT_EQ(CurrentKey({"submit"}, "wait"), "wait");
}

// Nothing listens there: the answer is the same under both names, apart from the warning.
TEST(Renamed, TheProgramTakesOldNamesAndItsHelpHidesThem) {
  const std::vector<std::string> status = {"fleet", "status", "--tracker", "127.0.0.1:1"};
  std::vector<std::string> old_name = status, new_name = status;
  old_name.insert(old_name.end(), {"--wait", "0.1"});
  new_name.insert(new_name.end(), {"--wait-timeout", "0.1"});
  const CliResult with_old = Cli(old_name), with_new = Cli(new_name);
  EXPECT_EQ(with_old.code, 1);
  EXPECT_EQ(
      with_old.err,
      "warning: --wait is deprecated and will be removed in the next release; use --wait-timeout\n" + with_new.err);
  EXPECT_THAT(Cli({"history", "distill", "--help"}).out, HasSubstr("prune"));
  EXPECT_THAT(Cli({"history", "--help"}).out, Not(HasSubstr("distill")));
}

}  // namespace
}  // namespace diapason
