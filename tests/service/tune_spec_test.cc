#include "service/tune_spec.h"

#include <gtest/gtest.h>

#include <cmath>

#include "diapason/v1/tuning.pb.h"

namespace diapason {
namespace {

TuneSpec Everything() {
  TuneSpec spec;
  spec.model = "gemm";
  spec.options.batch = 3;
  spec.options.layout = Layout::kNCHW;
  spec.options.dtype = DType::kFloat16;
  spec.options.input_shapes = {{"x", {1, 2, 3}}};
  spec.options.extra = {{"m", "32"}};
  spec.dims.sizes = {{"batch", {1, 4}}, {"seq", {128}}};
  spec.dims.weights = {{"batch", {{4, 2.5}}}};
  spec.target = "cpu -num-cores=1";
  spec.trials = 77;
  spec.seconds = 1.5;
  spec.tasks = "1,2";
  spec.seed = 5;
  spec.trials_per_round = 16;
  spec.early_stop = 0.25;
  spec.objective = "targets:gemm=5ms";
  spec.measure = {5, 11, 12.5, 31, 13, false};
  spec.device_model = "Fake 3000";
  spec.labels = {{"rack", "a"}};
  spec.priority = -2;
  spec.weight = 2.5;
  spec.deterministic = true;
  spec.cold_start = true;
  spec.no_check = true;
  spec.options.strict = true;
  return spec;
}

TEST(TuneSpec, EveryOptionArrives) {
  v1::TuneSpec message;
  ToProto(Everything(), message);
  const absl::StatusOr<TuneSpec> read = FromProto(message);
  ASSERT_TRUE(read.ok()) << read.status();
  v1::TuneSpec again;
  ToProto(*read, again);
  EXPECT_EQ(again.DebugString(), message.DebugString());
  const TuneSpec spec = Everything();
  EXPECT_EQ(read->options.input_shapes, spec.options.input_shapes);
  EXPECT_EQ(read->dims.sizes, spec.dims.sizes);
  EXPECT_EQ(read->dims.weights, spec.dims.weights);
  EXPECT_EQ(read->measure.build_timeout_s, 31);
  EXPECT_EQ(read->measure.race, false);
  EXPECT_EQ(read->labels, spec.labels);
  EXPECT_EQ(read->priority, -2);
  EXPECT_EQ(read->deterministic, true);
  EXPECT_EQ(read->cold_start, true);
  EXPECT_EQ(read->no_check, true);
  EXPECT_EQ(read->options.strict, true);
}

TEST(TuneSpec, AnOlderClientsFlushesAreSaidByTheTarget) {
  v1::TuneSpec message;
  ToProto(Everything(), message);
  const std::string target = FromProto(message)->target;
  message.set_flush_l2(true);
  EXPECT_EQ(FromProto(message)->target, target + " -caches=flushed");
}

TEST(TuneSpec, RefusesWhatTheProgramWouldNotSend) {
  auto refusal = [](const std::function<void(v1::TuneSpec&)>& change) {
    v1::TuneSpec message;
    ToProto(Everything(), message);
    change(message);
    return std::string(FromProto(message).status().message());
  };
  EXPECT_EQ(refusal([](auto& m) { m.set_repeat(0); }), "the job's repeat is 0: give a number from 1 to 1000");
  EXPECT_EQ(refusal([](auto& m) { m.set_weight(std::nan("")); }),
            "the job's weight is nan: give a number from 1e-06 to 1e+06");
  EXPECT_EQ(refusal([](auto& m) { m.set_layout("CHWN"); }), "the job's layout is 'CHWN': give NHWC or NCHW");
  EXPECT_EQ(refusal([](auto& m) { m.set_dtype("int4"); }),
            "the job's dtype is 'int4'; give float32, float16 or bfloat16");
  EXPECT_EQ(refusal([](auto& m) { m.set_model(""); }), "the job names no model");
  EXPECT_EQ(refusal([](auto& m) { (*m.mutable_dims())["seq"].set_sizes(0, 0); }),
            "'seq' cannot have the size 0: give a number from 1 to 16777216");
  EXPECT_EQ(refusal([](auto& m) { (*m.mutable_dims())["seq"].add_sizes(64); }),
            "the sizes of 'seq' are not in ascending order");
  EXPECT_EQ(refusal([](auto& m) { (*m.mutable_dims())["a"]; }), "the symbol 'a' is given no sizes");
  EXPECT_EQ(refusal([](auto& m) { m.mutable_dim_weights(0)->set_size(3); }),
            "--weight names batch=3, which --dim does not ask for: its sizes are batch=1,4 seq=128");
  EXPECT_EQ(refusal([](auto& m) {
              for (int64_t i = 200; i < 240; ++i) (*m.mutable_dims())["seq"].add_sizes(i);
            }).rfind("--dim asks for more than 64 combinations of sizes (batch=1,4 seq=128,200,", 0),
            0u);
  // A path would be read on the service's host.
  EXPECT_EQ(refusal([](auto& m) { m.set_model("/etc/secret.onnx"); }),
            "the job's model '/etc/secret.onnx' is a file: send its content, or name a built-in network");
  EXPECT_NE(refusal([](auto& m) { m.set_target("abacus"); }), "");
}

TEST(TuneSpec, WorkHasTasksAndChecksTheirIds) {
  TuneSpec spec;
  spec.model = "gemm";
  spec.options.extra = {{"m", "8"}, {"n", "8"}, {"k", "8"}};
  spec.target = "cpu";
  const absl::StatusOr<TuneWork> work = PrepareWork(spec, "gemm", {});
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_EQ(work->network, "gemm");
  ASSERT_EQ(work->tasks.size(), 1u);
  EXPECT_EQ(work->links[0].network, "gemm");
  spec.tasks = "2";
  EXPECT_EQ(
      PrepareWork(spec, "gemm", {}).status(),
      absl::InvalidArgumentError("--tasks 2 does not name tasks of this network; give ids from 1 to 1 as `diapason "
                                 "tasks` shows them, for example --tasks 1,4"));
}

TEST(TuneSpec, ALimitOfTrialsIsTheDefaultWithoutOneOfTime) {
  TuneSpec spec;
  EXPECT_EQ(spec.trial_limit(), 1000);
  spec.seconds = 5;
  EXPECT_EQ(spec.trial_limit(), std::nullopt);
  spec.trials = 7;
  EXPECT_EQ(spec.trial_limit(), 7);
}

}  // namespace
}  // namespace diapason
