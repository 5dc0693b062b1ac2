#include "compiler/runtime/outcome.h"

#include <set>

#include "gtest/gtest.h"

namespace diapason {
namespace {

TEST(OutcomeTest, MedianIsTheMiddleOrTheMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(MedianSeconds({.samples = {3}}), 3);
  EXPECT_EQ(MedianSeconds({.samples = {9, 1, 2}}), 2);
  EXPECT_EQ(MedianSeconds({.samples = {9, 1, 2, 4}}), 3);
}

TEST(OutcomeTest, EveryKindHasANameOfItsOwnThatReadsBack) {
  std::set<std::string> names;
  for (ErrorKind kind : AllErrorKinds()) {
    EXPECT_EQ(ParseErrorKind(ErrorKindName(kind)), kind);
    names.insert(ErrorKindName(kind));
  }
  EXPECT_EQ(names, (std::set<std::string>{"unknown", "instantiation", "lowering", "compile", "build_timeout",
                                          "build_crash", "run_timeout", "run_crash", "out_of_memory", "illegal_access",
                                          "launch_failure", "wrong_result", "infrastructure"}));
  EXPECT_EQ(ParseErrorKind("sunspots"), std::nullopt);
}

TEST(OutcomeTest, EveryStageReadsBack) {
  for (int stage = 0; stage <= static_cast<int>(MeasureStage::kVerify); ++stage)
    EXPECT_EQ(ParseStage(StageName(static_cast<MeasureStage>(stage))), static_cast<MeasureStage>(stage));
  EXPECT_EQ(ParseStage(""), std::nullopt);
}

TEST(OutcomeTest, OnlyInfrastructureSaysNothingOfTheCandidate) {
  EXPECT_TRUE(SpeaksOfCandidate(Timing{{1}}));
  for (ErrorKind kind : AllErrorKinds())
    EXPECT_EQ(SpeaksOfCandidate(MeasureError{kind, MeasureStage::kUnknown, ""}), kind != ErrorKind::kInfrastructure)
        << ErrorKindName(kind);
}

}  // namespace
}  // namespace diapason
