#include "compiler/schedule/library.h"

#include <gtest/gtest.h>

#include <map>

#include "compiler/schedule/state.h"
#include "compiler/schedule/step.h"
#include "tests/schedule/library_cases.h"

namespace diapason {
namespace {

using testing::ConvolutionCase;
using testing::ConvolutionCases;
using testing::DagOf;
using testing::NamedTask;
using testing::ProductCases;

ConvolutionCase CaseNamed(const std::string& name) {
  for (const ConvolutionCase& c : ConvolutionCases())
    if (c.name == name) return c;
  ADD_FAILURE() << name;
  return {};
}

ConvolutionCall CallOf(const std::string& name, bool fused) {
  const absl::StatusOr<LibraryMatch> match = MatchLibrary(DagOf(CaseNamed(name)), Library::kCudnn, fused);
  EXPECT_TRUE(match.ok()) << name << ": " << match.status();
  return match.ok() ? std::get<ConvolutionCall>(match->call.what) : ConvolutionCall{};
}

std::string Refusal(const ComputeDag& dag, Library library, bool fused = false) {
  return std::string(MatchLibrary(dag, library, fused).status().message());
}

TEST(MatchLibrary, ReadsEveryConvolution) {
  for (const ConvolutionCase& c : ConvolutionCases()) {
    SCOPED_TRACE(c.name);
    const ComputeDag dag = DagOf(c);
    const absl::StatusOr<LibraryMatch> match = MatchLibrary(dag, Library::kCudnn, false);
    ASSERT_TRUE(match.ok()) << match.status() << "\n" << dag.ToString();
    const ConvolutionCall& call = std::get<ConvolutionCall>(match->call.what);
    EXPECT_EQ(call.dtype, c.dtype);
    EXPECT_EQ(call.nhwc, c.nhwc);
    EXPECT_EQ(call.batch, c.batch);
    EXPECT_EQ(call.channels, c.in);
    EXPECT_EQ(call.filters, c.out);
    EXPECT_EQ(call.groups, c.groups);
    EXPECT_EQ(call.kernel_h, c.kernel_h);
    EXPECT_EQ(call.kernel_w, c.kernel_w);
    EXPECT_EQ(call.dilation_h, c.dilations[0]);
    EXPECT_EQ(match->repack_weights, c.nhwc);
    EXPECT_FALSE(call.bias || call.residual || call.relu);
    const bool even = c.pads[0] == c.pads[2] && c.pads[1] == c.pads[3];
    if (even) {
      EXPECT_EQ(call.pad_h, c.pads[0]);
      EXPECT_EQ(call.pad_w, c.pads[1]);
      EXPECT_EQ(call.height, c.height);
      EXPECT_EQ(call.width, c.width);
    } else {  // padded by a kernel of ours
      EXPECT_EQ(call.pad_h, 0);
      EXPECT_EQ(call.height, 8 + 1);
    }
    // Along one output alone the stride says nothing.
    EXPECT_TRUE(call.out_h == 1 || call.stride_h == c.strides[0]) << call.stride_h;
    EXPECT_TRUE(call.out_w == 1 || call.stride_w == c.strides[1]) << call.stride_w;
  }
}

TEST(MatchLibrary, FusesWhatOneCallTakes) {
  struct Want {
    const char* name;
    bool residual, relu;
  };
  for (const Want& want : {Want{"3x3", false, true}, Want{"residual", true, true}, Want{"bias_alone", false, false},
                           Want{"hard_swish", true, false}, Want{"3x3_nchw", false, true},
                           Want{"residual_half", true, true}, Want{"depthwise_half", false, true}}) {
    const ConvolutionCall call = CallOf(want.name, true);
    EXPECT_TRUE(call.bias) << want.name;
    EXPECT_EQ(call.residual, want.residual) << want.name;
    EXPECT_EQ(call.relu, want.relu) << want.name;
  }
  const std::string nothing = "no cuDNN call: nothing that follows can be fused";
  for (const char* name : {"bare", "relu_without_bias", "scale_shift"})
    EXPECT_EQ(Refusal(DagOf(CaseNamed(name)), Library::kCudnn, true), nothing) << name;
}

TEST(MatchLibrary, HalfPrecisionResultsAreStoredAsSuch) {
  // The cast at the end of the network is the call's own ...
  EXPECT_FALSE(MatchLibrary(DagOf(CaseNamed("residual_half")), Library::kCudnn, true)->narrow);
  EXPECT_FALSE(MatchLibrary(DagOf(CaseNamed("bare_half")), Library::kCudnn, false)->narrow);
  // ... but not behind a kernel of ours.
  EXPECT_TRUE(MatchLibrary(DagOf(CaseNamed("hard_swish_half")), Library::kCudnn, true)->narrow);
  EXPECT_TRUE(MatchLibrary(DagOf(CaseNamed("3x3_half")), Library::kCudnn, false)->narrow);
  EXPECT_FALSE(MatchLibrary(DagOf(CaseNamed("3x3")), Library::kCudnn, false)->narrow);
}

TEST(MatchLibrary, ReadsEveryProduct) {
  std::map<std::string, GemmCall> calls;
  for (const NamedTask& task : ProductCases()) {
    const absl::StatusOr<LibraryMatch> match = MatchLibrary(task.dag, Library::kCublas, false);
    ASSERT_TRUE(match.ok()) << task.name << ": " << match.status() << "\n" << task.dag.ToString();
    calls[task.name] = std::get<GemmCall>(match->call.what);
    EXPECT_EQ(Refusal(task.dag, Library::kCublas, true), "no cuBLAS call: it fuses nothing");
  }
  GemmCall plain;
  plain.m = 24, plain.n = 56, plain.k = 40, plain.lda = 40, plain.ldb = 56, plain.ldc = 56;
  EXPECT_EQ(calls["gemm"], plain);
  GemmCall both = plain;
  both.transpose_a = both.transpose_b = true;
  both.lda = 24, both.ldb = 40;
  EXPECT_EQ(calls["gemm_ta_tb"], both);
  plain.in = DType::kFloat16;
  EXPECT_EQ(calls["gemm_half"], plain);
  GemmCall batched;
  batched.batch = 3, batched.m = 8, batched.n = 24, batched.k = 16, batched.lda = 16, batched.ldb = batched.ldc = 24;
  batched.stride_a = 128, batched.stride_b = 384, batched.stride_c = 192;
  EXPECT_EQ(calls["batched"], batched);
  // All rows of all batches at once.
  EXPECT_EQ(calls["shared_weights"].batch, 1);
  EXPECT_EQ(calls["shared_weights"].m, 24);
  // Pixels are rows where channels are dense, and columns, image by image, where they are not.
  EXPECT_EQ(calls["pointwise"].m, 2 * 8 * 8);
  EXPECT_EQ(calls["pointwise_nchw"].batch, 2);
  EXPECT_EQ(calls["pointwise_nchw"].stride_a, 0);
  EXPECT_EQ(calls["pointwise_nchw"].n, 8 * 8);
}

TEST(MatchLibrary, RefusesOthersAndSaysWhy) {
  EXPECT_EQ(Refusal(DagOf(CaseNamed("3x3")), Library::kCublas), "no cuBLAS call: the reduction is no single distance");
  testing::OneTask dense;
  const ComputeDag product = dense.Dag(
      dense.Op("gemm", {dense.Input("a", {4, 8}, DType::kFloat32), dense.Constant("b", {8, 4}, DType::kFloat32)}));
  EXPECT_EQ(Refusal(product, Library::kCudnn), "no cuDNN call: the result has no 4 dimensions");
  testing::OneTask pool;
  EXPECT_EQ(Refusal(pool.Dag(pool.Op("max_pool", {pool.Input("x", {1, 4, 8, 8}, DType::kFloat32)},
                                     {{"kernel", std::vector<int64_t>{2, 2}}})),
                    Library::kCudnn),
            "no library call: the reduction is no sum of products in float32");
  testing::OneTask relu;
  EXPECT_EQ(Refusal(relu.Dag(relu.Op("relu", {relu.Input("x", {8}, DType::kFloat32)})), Library::kCublas),
            "no library call: no stage reduces");
  testing::OneTask twice;
  EXPECT_EQ(Refusal(twice.Dag(twice.Op("softmax", {twice.Input("x", {4, 8}, DType::kFloat32)})), Library::kCublas),
            "no library call: more than one stage reduces");
  testing::OneTask doubles;
  EXPECT_EQ(Refusal(doubles.Dag(doubles.Op("gemm", {doubles.Input("a", {4, 8}, DType::kFloat64),
                                                    doubles.Constant("b", {8, 4}, DType::kFloat64)})),
                    Library::kCublas),
            "no library call: the reduction is no sum of products in float32");
}

TEST(MatchLibrary, APaddingByAnotherNumberIsNotTheCallsOwn) {
  testing::OneTask task;
  const int x = task.Input("x", {1, 8, 8, 8}, DType::kFloat32), w = task.Constant("w", {3, 3, 8, 16}, DType::kFloat32);
  const int padded = task.Op("pad", {x}, {{"pads", std::vector<int64_t>{0, 1, 1, 0, 0, 1, 1, 0}}, {"value", 1.0}});
  const ComputeDag dag = task.Dag(task.Op("conv2d", {padded, w}, {{"layout", std::string("NHWC")}}));
  const absl::StatusOr<LibraryMatch> match = MatchLibrary(dag, Library::kCudnn, false);
  ASSERT_TRUE(match.ok()) << match.status();
  EXPECT_TRUE(match->covered.empty());
  EXPECT_EQ(std::get<ConvolutionCall>(match->call.what).height, 10);
  EXPECT_EQ(std::get<ConvolutionCall>(match->call.what).pad_h, 0);
}

TEST(AlgorithmsOf, AreThoseThatMayWork) {
  const auto algorithms = [](const std::string& name) { return AlgorithmsOf({0, CallOf(name, false)}); };
  EXPECT_EQ(algorithms("3x3"), (std::vector<int>{1, 0, 6, 7}));
  EXPECT_EQ(algorithms("3x3_nchw"), (std::vector<int>{1, 0, 6, 7, 2, 4, 5}));
  EXPECT_EQ(algorithms("7x7_stride_nchw"), (std::vector<int>{1, 0, 2}));
  EXPECT_EQ(algorithms("1x1_nchw"), (std::vector<int>{1, 0, 2}));
  EXPECT_EQ(algorithms("depthwise"), (std::vector<int>{1, 0, 6}));
  EXPECT_EQ(AlgorithmsOf({0, GemmCall{}}), (std::vector<int>{0}));
}

Schedule LibrarySchedule(const LibraryMatch& match, bool fused) {
  Schedule schedule;
  schedule.rewrite = DagRewrite{"library", {}};
  schedule.sketch = "library/cudnn";
  schedule.steps.push_back({StepKind::kLibrary, match.last, {}, {Factor::Of(1)}, match.anchor, {1, fused}});
  return schedule;
}

TEST(LibraryStep, ReplaysFromItsBytes) {
  const ComputeDag dag = DagOf(CaseNamed("residual"));
  const LibraryMatch match = MatchLibrary(dag, Library::kCudnn, true).value();
  const absl::StatusOr<Schedule> back = ParseSchedule(SerializeSchedule(LibrarySchedule(match, true)));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->rewrite.ToString(), "library");
  const absl::StatusOr<State> state = Replay(dag, back->steps);
  ASSERT_TRUE(state.ok()) << state.status();
  const StageState& last = state->stage(match.last);
  ASSERT_NE(last.library, nullptr);
  EXPECT_EQ(*last.library, match.call);
  EXPECT_EQ(last.library_algorithm.Eval({}), 1);
  for (int id : match.covered) EXPECT_FALSE(state->stage(id).computes());
  // Weights come repacked, by a stage that runs once.
  ASSERT_EQ(state->size(), dag.size() + 1);
  EXPECT_TRUE(state->stage(dag.size()).prologue);
  EXPECT_EQ(last.library_operands[1], dag.size());
}

TEST(LibraryStep, RefusesWhatDoesNotFit) {
  const ComputeDag dag = DagOf(CaseNamed("residual"));
  const LibraryMatch match = MatchLibrary(dag, Library::kCudnn, true).value();
  const auto error = [&](const Step& step) { return std::string(Replay(dag, {step}).status().message()); };
  Step step = LibrarySchedule(match, true).steps[0];
  EXPECT_EQ(Replay(dag, {step, step}).status().code(), absl::StatusCode::kInvalidArgument);
  Step other = step;
  other.ints = {3, 1};
  EXPECT_EQ(error(other),
            "schedule step 0 (library stage 8 target 3 factors 1 ints 3,1): stage relu: there is no library 3");
  other = step;
  other.target = 0;
  EXPECT_EQ(error(other),
            "schedule step 0 (library stage 8 target 0 factors 1 ints 1,1): stage relu: it is not what cuDNN would "
            "compute");
  other = step;
  other.ints = {1};
  EXPECT_EQ(error(other),
            "schedule step 0 (library stage 8 target 3 factors 1 ints 1): stage relu: a library call takes a "
            "library, whether it is fused, and an algorithm");
}

}  // namespace
}  // namespace diapason
