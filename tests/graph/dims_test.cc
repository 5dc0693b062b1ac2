#include "compiler/graph/dims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<int64_t> SizesFor(const std::string& text) {
  DimChoices choices;
  const absl::Status added = AddDim(text, choices);
  EXPECT_TRUE(added.ok()) << added;
  return choices.sizes.empty() ? std::vector<int64_t>{} : choices.sizes.begin()->second;
}

std::string Refusal(const std::vector<std::string>& dims, const std::vector<std::string>& weights = {}) {
  DimChoices choices;
  for (const std::string& text : dims)
    if (const absl::Status added = AddDim(text, choices); !added.ok()) return std::string(added.message());
  for (const std::string& text : weights)
    if (const absl::Status added = AddDimWeight(text, choices); !added.ok()) return std::string(added.message());
  return std::string(CheckDimChoices(choices).message());
}

TEST(Dims, ListsAreSortedAndRangesAreBuckets) {
  EXPECT_THAT(SizesFor("seq=128,16,64,16"), ElementsAre(16, 64, 128));
  EXPECT_THAT(SizesFor("seq=1..512"),
              ElementsAre(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512));
  EXPECT_THAT(SizesFor("seq=5..20"), ElementsAre(6, 8, 12, 16, 20));
  EXPECT_THAT(SizesFor("seq=7..7"), ElementsAre(7));
  EXPECT_THAT(SizesFor("seq=1,100..130"), ElementsAre(1, 128, 130));
  // Names of exporters may be expressions.
  DimChoices choices;
  ASSERT_TRUE(AddDim("a==b=3", choices).ok());
  EXPECT_EQ(SizesText(choices.sizes), "a==b=3");
}

TEST(Dims, EachCombinationHasTheProductOfItsWeights) {
  DimChoices choices;
  for (const char* text : {"seq=16,128", "batch=1,4"}) ASSERT_TRUE(AddDim(text, choices).ok());
  for (const char* text : {"seq=128:5", "batch=4:0.5"}) ASSERT_TRUE(AddDimWeight(text, choices).ok());
  ASSERT_TRUE(CheckDimChoices(choices).ok());
  const std::vector<DimCombination> all = CombinationsOf(choices);
  ASSERT_THAT(all, SizeIs(4));
  EXPECT_EQ(SizesText(all[0].sizes), "batch=1 seq=16");
  EXPECT_EQ(SizesText(all[3].sizes), "batch=4 seq=128");
  EXPECT_EQ(NameWithSizes("bert", all[3].sizes), "bert[batch:4;seq:128]");
  EXPECT_EQ(all[0].weight, 1);
  EXPECT_EQ(all[1].weight, 5);
  EXPECT_EQ(all[3].weight, 2.5);
  ASSERT_THAT(CombinationsOf({}), SizeIs(1));
  EXPECT_EQ(NameWithSizes("bert", CombinationsOf({})[0].sizes), "bert");
}

TEST(Dims, RefusalsSayWhatToWrite) {
  const std::string example = " is not understood; write it as SYMBOL=SIZES, for example seq=16,64,128 or seq=1..512";
  for (const char* text :
       {"seq", "=4", "seq=", "seq=a", "seq=1,", "seq=1..2..3", "seq=1...4", "seq=1.5", "seq=99999999999999999999"})
    EXPECT_EQ(Refusal({text}), "--dim " + std::string(text) + example);
  EXPECT_EQ(Refusal({"seq=0"}), "'seq' cannot have the size 0: give a number from 1 to 16777216");
  EXPECT_EQ(Refusal({"seq=-3"}), "'seq' cannot have the size -3: give a number from 1 to 16777216");
  EXPECT_EQ(Refusal({"seq=16777217"}), "'seq' cannot have the size 16777217: give a number from 1 to 16777216");
  EXPECT_EQ(Refusal({"seq=8..4"}), "--dim seq=8..4 has the range 8..4, which ends before it begins");
  EXPECT_EQ(Refusal({"seq=1", "seq=2"}),
            "--dim gives sizes of 'seq' twice: give all of them at once, as in --dim seq=16,64,128");
}

TEST(Dims, TheNumberOfCombinationsIsLimited) {
  EXPECT_EQ(Refusal({"a=1,2,3,4,5,6,7,8", "b=1,2,3,4,5,6,7,8"}), "");
  EXPECT_EQ(Refusal({"a=1,2,3,4,5,6,7,8", "b=1,2,3,4,5,6,7,8,9"}),
            "--dim asks for more than 64 combinations of sizes (a=1,2,3,4,5,6,7,8 b=1,2,3,4,5,6,7,8,9), which is the "
            "limit: give fewer sizes");
}

TEST(Dims, WeightsAreOfSizesThatAreAskedFor) {
  const std::string example = " is not understood; write it as SYMBOL=SIZE:WEIGHT, for example seq=128:5";
  EXPECT_EQ(Refusal({"seq=4"}, {"seq=4"}), "--weight seq=4" + example);
  EXPECT_EQ(Refusal({"seq=4"}, {"seq=4:x"}), "--weight seq=4:x" + example);
  EXPECT_EQ(Refusal({"seq=4"}, {"seq=4:0"}),
            "the size 4 of 'seq' cannot have the weight 0: give a number from 1e-06 to 1e+06");
  EXPECT_EQ(Refusal({"seq=4"}, {"seq=4:nan"}),
            "the size 4 of 'seq' cannot have the weight nan: give a number from 1e-06 to 1e+06");
  EXPECT_EQ(Refusal({"seq=4,8"}, {"seq=5:2"}),
            "--weight names seq=5, which --dim does not ask for: its sizes are seq=4,8");
  EXPECT_EQ(Refusal({}, {"seq=5:2"}), "--weight names seq=5, which --dim does not ask for");
}

}  // namespace
}  // namespace diapason
