// Networks that end in results with as many rows as are found, through the commands.
#include <fstream>

#include "api/tensor_file.h"
#include "onnx/onnx_pb.h"
#include "tests/cli/fleet_fixture.h"
#include "tests/graph/onnx/model_builder.h"

namespace diapason {
namespace {

const std::string kOneCore = "cpu -num-cores=1";

// Boxes of one image that overlap none with a better score. Where the scores are sorted again, rows that were not found
// could come first.
std::string Detector(bool sorts) {
  ModelBuilder m(13);
  m.Input("boxes", {1, 6, 4}).Input("scores", {1, 1, 6});
  m.Initializer("most", IntList({4}))
      .Initializer("overlap", Array::FromFloats({1}, {0.5F}))
      .Initializer("least", Array::FromFloats({1}, {0.1F}));
  m.Initializer("which", IntList({2}))
      .Initializer("first", IntList({0}))
      .Initializer("k", IntList({2}))
      .Initializer("flat", IntList({-1}));
  m.Node("NonMaxSuppression", {"boxes", "scores", "most", "overlap", "least"}, {"found"});
  m.Node("Gather", {"found", "which"}, {"column"}, {{"axis", int64_t{1}}})
      .Node("Reshape", {"column", "flat"}, {"index"});
  m.Node("Squeeze", {"boxes", "first"}, {"all"}).Node("Gather", {"all", "index"}, {"kept"}).Output("kept");
  if (!sorts) return m.Bytes();
  m.Node("Reshape", {"scores", "flat"}, {"list"})
      .Node("Gather", {"list", "index"}, {"of_kept"})
      .Node("TopK", {"of_kept", "k"}, {"best", "order"});
  return m.Output("best").Bytes();
}

class FoundRows : public FleetCli {
 protected:
  void SetUp() override {
    FleetCli::SetUp();
    std::ofstream(Path("detector.onnx"), std::ios::binary) << Detector(false);
    std::ofstream(Path("sorter.onnx"), std::ios::binary) << Detector(true);
  }
  CliResult Build(const std::string& model, std::vector<std::string> more) const {
    std::vector<std::string> args = {"build", Path(model), "--target", kOneCore, "--out", Path("p")};
    args.insert(args.end(), more.begin(), more.end());
    return Cli(args);
  }
};

TEST_F(FoundRows, APackageGivesWhatWasFoundAndHowMuch) {
  const CliResult built = Build("detector.onnx", {"--dim", "found.rows=5"});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_NE(
      (built.out + built.err)
          .find(
              "output 'kept' has room for 5 rows; as many as the output 'found.rows' says are results, the first ones"),
      std::string::npos)
      << built.out << built.err;
  // 0 and 1 overlap by more than a half, 4 has no score to speak of.
  const std::vector<float> boxes = {0,  0,  4,  4,  0,  0,  4,  3.8F, 10, 10, 12, 12,
                                    20, 20, 22, 23, 30, 30, 31, 31,   0,  0,  4,  1};
  ASSERT_TRUE(api::WriteNpyFile(Path("boxes.npy"), Array::FromFloats({1, 6, 4}, boxes)).ok());
  ASSERT_TRUE(
      api::WriteNpyFile(Path("scores.npy"), Array::FromFloats({1, 1, 6}, {0.5F, 0.6F, 0.3F, 0.9F, 0.05F, 0.2F})).ok());
  const CliResult run = Cli({"run", Path("p"), "--input", "boxes=" + Path("boxes.npy"), "--input",
                             "scores=" + Path("scores.npy"), "--output-dir", Path("got")});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out.rfind("output kept: float32 5x4\noutput found.rows: int64 1\n", 0), 0u) << run.out;
  const auto count = api::ReadTensorFile(Path("got/found.rows.npy")), kept = api::ReadTensorFile(Path("got/kept.npy"));
  ASSERT_TRUE(count.ok() && kept.ok());
  ASSERT_EQ(count->int_at(0), 4);
  const int64_t order[] = {3, 1, 2, 5};
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t d = 0; d < 4; ++d) EXPECT_EQ(kept->at(4 * i + d), boxes[4 * order[i] + d]) << i << " " << d;
}

TEST_F(FoundRows, WhatMixesRowsIsRefused) {
  EXPECT_EQ(Build("detector.onnx", {}).err, "error: cannot import '" + Path("detector.onnx") +
                                                "': node 'node_found' (NonMaxSuppression of opset 13): how many boxes "
                                                "it finds is known only when the network runs: say how many its result "
                                                "has room for with --dim found.rows=128\n");
  EXPECT_EQ(Build("sorter.onnx", {"--dim", "found.rows=5"}).err,
            "error: cannot import '" + Path("sorter.onnx") +
                "': rows after those found, for which 'found.rows' has room, are not known to be harmless (node "
                "'node_best' (top_k_indices) combines "
                "values along 'found.rows', those of padding included): export the model without what follows, and do "
                "that after the network\n");
  EXPECT_EQ(
      Build("detector.onnx", {"--dim", "found.rows=1"}).err,
      "error: cannot import '" + Path("detector.onnx") + "': 'found.rows' must have room for 2 or more, not for 1\n");
  EXPECT_EQ(Build("detector.onnx", {"--dim", "found.rows=5,9"}).err,
            "error: 'found.rows' says how many rows a result has room for, which must be one number, not 2 "
            "(found.rows=5,9): give the largest\n");
}

}  // namespace
}  // namespace diapason
