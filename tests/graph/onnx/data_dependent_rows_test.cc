#include "compiler/graph/onnx/data_dependent_rows.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

class DataDependentRowsTest : public testing::Test {
 protected:
  DataDependentRowsTest() {
    node_.op = "NonZero";
    node_.outputs = {"found"};
  }
  static ImportValue Flags(int64_t rows) {
    auto flags = std::make_shared<ImportedTensor>();
    flags->type = {DType::kBool, {rows}};
    return flags;
  }

  OnnxNode node_;
  ImportState state_;
  DataDependentRows rows_{state_, node_};
};

TEST_F(DataDependentRowsTest, AskForRoomWhereNobodyGivesAny) {
  EXPECT_TRUE(rows_.IsUnbounded());
  EXPECT_EQ(rows_.Capacity("elements are not 0").status(),
            absl::InvalidArgumentError("how many elements are not 0 is known only when the network runs: say how many "
                                       "its result has room for with --dim found.rows=128"));
}

TEST_F(DataDependentRowsTest, HaveTheRoomThatTheUserGives) {
  state_.dims["found.rows"] = 20;
  EXPECT_FALSE(rows_.IsUnbounded());
  EXPECT_EQ(rows_.Capacity("boxes it finds").value(), 20);
  EXPECT_EQ(rows_.Taken(), 20);
  state_.rows_taken["found.rows"] = 7;
  EXPECT_EQ(rows_.Taken(), 7);
  state_.dims["found.rows"] = 0;
  EXPECT_EQ(rows_.Capacity("boxes it finds").status(), absl::InvalidArgumentError("its result cannot have room for 0"));
}

TEST_F(DataDependentRowsTest, AreCountedOnce) {
  state_.dims["found.rows"] = 20;
  const ImportValue count = Flags(1);
  rows_.SetCount(count);
  EXPECT_EQ(state_.counts.at("found.rows"), count);
  EXPECT_EQ(rows_.Capacity("boxes it finds").status(),
            absl::InvalidArgumentError("how many boxes it finds is known only when the network runs, which is not "
                                       "supported in a loop"));
}

TEST_F(DataDependentRowsTest, BoundedOnesComeFirstAndFlaggedOnesAreAnywhere) {
  const FoundRowsPtr bounded = rows_.Bounded(Flags(20));
  EXPECT_TRUE(bounded->first);
  EXPECT_EQ(bounded->bound, "found.rows");
  EXPECT_EQ(bounded->capacity, 20);
  const ImportValue source = Flags(9);
  const FoundRowsPtr flagged = rows_.Flagged(absl::InvalidArgumentError("give --dim"), source, Flags(9));
  EXPECT_FALSE(flagged->first);
  EXPECT_EQ(flagged->bound, "");
  EXPECT_EQ(flagged->wanted, "give --dim");
  EXPECT_EQ(flagged->source, source);
  EXPECT_EQ(rows_.Flagged(absl::OkStatus(), source, Flags(9))->key, flagged->key);
  EXPECT_NE(rows_.Flagged(absl::OkStatus(), Flags(9), Flags(9))->key, flagged->key);
}

TEST_F(DataDependentRowsTest, MayBeTrackedNoFurther) {
  EXPECT_FALSE(rows_.HasStoppedTracking());
  rows_.StopTracking("found.rows");
  EXPECT_TRUE(rows_.HasStoppedTracking());
  EXPECT_TRUE(state_.untracked.contains("found.rows"));
}

}  // namespace
}  // namespace diapason
