// Models with symbolic dimensions through the commands: their symbols, a package of several plans, inputs between the
// sizes, and a job.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "api/tensor_file.h"
#include "compiler/runtime/fill.h"
#include "onnx/onnx_pb.h"
#include "tests/cli/fleet_fixture.h"
#include "tests/graph/onnx/model_builder.h"

namespace diapason {
namespace {

const std::string kTarget = "cpu -num-cores=1";

Array Random(std::vector<int64_t> shape, uint64_t seed) {
  Array array(DType::kFloat32, std::move(shape));
  FillRandom(array, seed);
  return array;
}

// Attention over embedded tokens with a mask, as exporters write it: the shape of the heads is computed from that of
// the input.
std::string Encoder() {
  ModelBuilder m(17);
  m.Input("ids", {"batch", "seq"}, DType::kInt64).Input("mask", {"batch", "seq"});
  m.Initializer("table", Random({11, 8}, 1)).Initializer("weight", Random({8, 8}, 2));
  m.Initializer("one", Array::FromFloats({}, {1})).Initializer("low", Array::FromFloats({}, {-1e9f}));
  m.Initializer("heads", IntList({2, 4}))
      .Initializer("flat", IntList({8}))
      .Initializer("middle", IntList({1, 2}))
      .Initializer("zero", IntList({0}));
  m.Node("Gather", {"table", "ids"}, {"x"}).Node("Shape", {"ids"}, {"sizes"});
  m.Node("Concat", {"sizes", "heads"}, {"split"}, {{"axis", int64_t{0}}})
      .Node("Concat", {"sizes", "flat"}, {"joined"}, {{"axis", int64_t{0}}});
  m.Node("MatMul", {"x", "weight"}, {"projected"}).Node("Reshape", {"projected", "split"}, {"by_head"});
  m.Node("Transpose", {"by_head"}, {"q"}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  m.Node("Transpose", {"by_head"}, {"k"}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
  m.Node("MatMul", {"q", "k"}, {"scores"})
      .Node("Sub", {"one", "mask"}, {"hidden"})
      .Node("Mul", {"hidden", "low"}, {"penalty"});
  m.Node("Unsqueeze", {"penalty", "middle"}, {"spread"}).Node("Add", {"scores", "spread"}, {"masked"});
  m.Node("Softmax", {"masked"}, {"weights"}, {{"axis", int64_t{-1}}}).Node("MatMul", {"weights", "q"}, {"mixed"});
  m.Node("Transpose", {"mixed"}, {"back"}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}})
      .Node("Reshape", {"back", "joined"}, {"together"});
  m.Node("Add", {"x", "together"}, {"hidden_states"})
      .Node("Gather", {"hidden_states", "zero"}, {"first"}, {{"axis", int64_t{1}}});
  m.Node("Tanh", {"first"}, {"pooled"})
      .Node("MatMul", {"pooled", "weight"}, {"dense"})
      .Node("MatMul", {"dense", "weight"}, {"logits"});
  m.Output("hidden_states").Output("logits");
  return m.Bytes();
}

// Each row less the mean of all rows.
std::string Centred() {
  ModelBuilder m(17);
  m.Input("x", {"batch", 4});
  m.Node("ReduceMean", {"x"}, {"mean"}, {{"axes", std::vector<int64_t>{0}}})
      .Node("Sub", {"x", "mean"}, {"y"})
      .Output("y");
  return m.Bytes();
}

class Dims : public FleetCli {
 protected:
  void SetUp() override {
    FleetCli::SetUp();
    std::ofstream(Path("encoder.onnx"), std::ios::binary) << Encoder();
    std::ofstream(Path("centred.onnx"), std::ios::binary) << Centred();
  }

  std::vector<std::string> With(const std::string& command, const std::string& model,
                                std::vector<std::string> more) const {
    std::vector<std::string> args = {command, Path(model), "--target", kTarget};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  CliResult Build(const std::string& model, const std::string& out, std::vector<std::string> more) const {
    more.insert(more.end(), {"--out", Path(out), "--no-check"});
    return Cli(With("build", model, more));
  }
  // Inputs of the encoder in files; the last position of each sequence but the first is no real one.
  std::vector<std::string> Inputs(int64_t batch, int64_t sequence) const {
    Array ids(DType::kInt64, {batch, sequence}), mask(DType::kFloat32, {batch, sequence});
    for (int64_t i = 0; i < ids.elements(); ++i) {
      ids.set_int(i, (7 * i + 3) % 11);
      mask.set(i, i < sequence || i % sequence < sequence - 1 ? 1 : 0);
    }
    EXPECT_TRUE(api::WriteNpyFile(Path("ids.npy"), ids).ok() && api::WriteNpyFile(Path("mask.npy"), mask).ok());
    return {"--input", "ids=" + Path("ids.npy"), "--input", "mask=" + Path("mask.npy")};
  }
  CliResult Run(const std::string& package, std::vector<std::string> more) const {
    more.insert(more.begin(), {"run", Path(package)});
    return Cli(more);
  }
};

TEST_F(Dims, TasksShowsSymbolsPlansAndPadding) {
  const CliResult text = Cli(With("tasks", "encoder.onnx", {"--dim", "seq=4,8", "--dim", "batch=4", "--mask", "mask"}));
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out.rfind("input ids: int64 batchxseq\ninput mask: float32 batchxseq\nid  task", 0), 0u) << text.out;
  EXPECT_NE(text.out.find("\nplan batch=4 seq=4: "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" GFLOP\n  inputs from batch=1 on are padded\n  inputs from seq=5 on are padded\n"),
            std::string::npos)
      << text.out;

  EXPECT_NE(text.out.find(" kernels only move data\n"), std::string::npos) << text.out;  // transpositions

  const auto one = Cli(With("tasks", "encoder.onnx", {"--dim", "seq=4", "--json"})).json();
  const auto moved = std::count_if(one["tasks"].begin(), one["tasks"].end(),
                                   [](const auto& task) { return task["moves_data"] == true; });
  EXPECT_GT(moved, 0);
  EXPECT_LT(moved, static_cast<int64_t>(one["tasks"].size()));
  EXPECT_EQ(one["inputs"][0], (nlohmann::json{{"name", "ids"}, {"dtype", "int64"}, {"shape", {"batch", "seq"}}}));
  const auto two = Cli(With("tasks", "encoder.onnx", {"--dim", "seq=4,8", "--json"})).json();
  ASSERT_EQ(two["plans"].size(), 2u);
  EXPECT_EQ(two["plans"][1]["sizes"], (nlohmann::json{{"seq", 8}}));
  EXPECT_EQ(two["plans"][1]["padding"]["seq"]["safe"], false);
  EXPECT_EQ(two["plans"][1]["padding"]["seq"]["reason"],
            "node 'node_weights' (softmax) combines values along 'seq', those of padding included");
  // What does not know the sequence is one task of both.
  EXPECT_GT(two["tasks"].size(), one["tasks"].size());
  EXPECT_LT(two["tasks"].size(), 2 * one["tasks"].size());
}

TEST_F(Dims, APackageOfSeveralPlansRunsSizesBetweenThem) {
  const CliResult built =
      Build("encoder.onnx", "p", {"--dim", "seq=4,8", "--dim", "batch=1,4", "--mask", "mask", "--json"});
  ASSERT_EQ(built.code, 0) << built.err;
  const auto report = built.json();
  ASSERT_EQ(report["plans"].size(), 4u);
  EXPECT_EQ(report["plans"][3]["sizes"], (nlohmann::json{{"batch", 4}, {"seq", 8}}));
  EXPECT_EQ(report["plans"][3]["padding"]["batch"]["safe"], true);
  EXPECT_LT(report["kernels_stored"], report["kernels_used"]);

  const CliResult checked = Run("p", {"--check", "--json"});
  ASSERT_EQ(checked.code, 0) << checked.err;
  const nlohmann::json checks = checked.json();
  ASSERT_EQ(checks["plans"].size(), 4u);
  for (const auto& plan : checks["plans"]) EXPECT_EQ(plan["check"]["ok"], true) << plan;

  const std::vector<std::string> inputs = Inputs(3, 6);
  std::vector<std::string> args = inputs;
  args.insert(args.end(), {"--output-dir", Path("got")});
  const CliResult padded = Run("p", args);
  ASSERT_EQ(padded.code, 0) << padded.err;
  EXPECT_EQ(padded.out,
            "plan batch=4 seq=8 for inputs with batch=3 seq=6, padded\noutput hidden_states: float32 3x6x8\noutput "
            "logits: float32 3x1x8\n");
  // The same from a package of exactly this size.
  ASSERT_EQ(Build("encoder.onnx", "exact", {"--dim", "seq=6", "--dim", "batch=3"}).code, 0);
  args.back() = Path("want");
  const CliResult exact = Run("exact", args);
  ASSERT_EQ(exact.code, 0) << exact.err;
  EXPECT_EQ(exact.out.rfind("plan batch=3 seq=6\n", 0), 0u) << exact.out;
  for (const char* name : {"/hidden_states.npy", "/logits.npy"}) {
    const Array got = api::ReadTensorFile(Path("got") + name).value(),
                want = api::ReadTensorFile(Path("want") + name).value();
    ASSERT_EQ(got.shape, want.shape);
    for (int64_t i = 0; i < want.elements(); ++i) EXPECT_NEAR(got.at(i), want.at(i), 1e-5) << name << " " << i;
  }
}

TEST_F(Dims, RunChoosesPlansByDimAndRefusesWhatThereIsNot) {
  ASSERT_EQ(Build("encoder.onnx", "p", {"--dim", "seq=4,8", "--mask", "mask"}).code, 0);
  const CliResult two = Run("p", {"--dim", "seq=8,3", "--check"});
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(two.out.rfind("plan batch=1 seq=4 for inputs with batch=1 seq=3, padded\n", 0), 0u) << two.out;
  EXPECT_NE(two.out.find("\nplan batch=1 seq=8\noutput hidden_states: float32 1x8x8\n"), std::string::npos) << two.out;
  ExpectError(Run("p", {"--dim", "seq=9"}),
              "the inputs have batch=1 seq=9, and the package has plans up to seq=8 (batch=1 seq=4,8): give smaller "
              "inputs, or build it again with "
              "--dim seq=9");
  ExpectError(Run("p", {"--dim", "batch=2", "--dim", "seq=4"}),
              "the inputs have batch=2 seq=4, and the package has plans up to batch=1 (batch=1 seq=4,8): give smaller "
              "inputs, or build it again with "
              "--dim batch=2");
  ExpectError(Run("p", {"--dim", "length=9"}), "the package has no symbolic dimension 'length': it has 'batch', 'seq'");
  ExpectError(Run("p", {"--output-dir", Path("out")}),
              "--output-dir takes the outputs of one run, and there would be 2: choose the sizes with --dim or inputs");
  std::vector<std::string> args = Inputs(1, 6);
  args.insert(args.end(), {"--dim", "seq=4"});
  ExpectError(Run("p", args), "the inputs have seq=6, and --dim says otherwise: leave --dim out");
}

TEST_F(Dims, PaddingThatChangesResultsIsRefused) {
  const CliResult built = Build("centred.onnx", "p", {"--dim", "batch=1,4"});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_NE(built.out.find("\ninputs between the sizes of batch are refused, since padding is not known to be "
                           "harmless: node 'node_mean' (reduce_mean) "
                           "combines values along 'batch', those of padding included\n"),
            std::string::npos)
      << built.out;
  EXPECT_EQ(Run("p", {"--check", "--dim", "batch=4"}).code, 0);
  ExpectError(Run("p", {"--dim", "batch=3"}),
              "the inputs have batch=3, and the package has plans for batch=1,4; padding along 'batch' is not known to "
              "be harmless (node 'node_mean' "
              "(reduce_mean) combines values along 'batch', those of padding included): give inputs of these sizes, or "
              "build it again with --dim batch=3");
}

TEST_F(Dims, FlagsThatMakeNoSenseAreRefused) {
  const auto tasks = [&](std::vector<std::string> more) { return Cli(With("tasks", "encoder.onnx", more)); };
  const std::string import = "cannot import '" + Path("encoder.onnx") + "': ";
  ExpectError(tasks({}), import +
                             "the size of 'seq' is open (input 'ids' is batchxseq, input 'mask' is batchxseq): give it "
                             "with --dim seq=128");
  ExpectError(tasks({"--dim", "length=4"}), import + "it has no symbolic dimension 'length': it has 'batch', 'seq'");
  ExpectError(tasks({"--dim", "seq=4", "--dim", "batch=2", "--batch", "3"}),
              import + "'batch' cannot be 2 (--dim batch=2) and 3 (--batch 3) at once: leave one of them out");
  ExpectError(tasks({"--dim", "seq"}),
              "--dim seq is not understood; write it as SYMBOL=SIZES, for example seq=16,64,128 or seq=1..512");
  ExpectError(tasks({"--dim", "seq=0"}), "'seq' cannot have the size 0: give a number from 1 to 16777216");
  ExpectError(
      tasks({"--dim", "seq=1..100000", "--dim", "batch=1,2"}),
      "--dim asks for more than 64 combinations of sizes (batch=1,2 "
      "seq=1,2,3,4,6,8,12,16,24,32,48,64,96,128,192,256,384,512,768,1024,1536,2048,"
      "3072,4096,6144,8192,12288,16384,24576,32768,49152,65536,98304,100000), which is the limit: give fewer sizes");
  ExpectError(tasks({"--dim", "seq=4", "--mask", "attention_mask"}),
              "the model has no input 'attention_mask' for --mask: its inputs are 'ids', 'mask'");
  ExpectError(tasks({"--mask", "mask"}),
              "--mask says what is padding between sizes; give these with --dim, for example --dim seq=16,64,128");
  const auto tune = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--history", Path("h.db")});
    return Cli(With("tune", "encoder.onnx", more));
  };
  ExpectError(tune({"--dim", "seq=4", "--weight", "heavy"}),
              "--weight heavy is not understood; give a number above 0, or SYMBOL=SIZE:WEIGHT, for example seq=128:5");
  ExpectError(tune({"--dim", "seq=4", "--weight", "seq=8:2"}),
              "--weight names seq=8, which --dim does not ask for: its sizes are seq=4");
  ExpectError(tune({"--dim", "seq=4", "--weight", "seq=4:2", "--objective", "targets:encoder=5ms"}),
              "--weight of sizes goes with --objective sum, not with 'targets:encoder=5ms': leave one of them out");
}

// Of a network of one task for each size: half of the trials go to each, or most to the one that counts.
TEST_F(Dims, TuningSpendsTrialsByWeight) {
  const std::vector<std::string> conv = {"tune", "conv2d", "--h", "8",        "--w",   "8",     "--ci",
                                         "8",    "--co",   "8",   "--target", kTarget, "--dim", "batch=1,2"};
  std::vector<std::string> args = conv;
  args.insert(args.end(), {"--weight", "batch=2:50", "--history", Path("h.db"), "--trials", "12", "--trials-per-round",
                           "2", "--min-repeat-ms", "1", "--json"});
  const CliResult tuned = Cli(args);
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const auto report = tuned.json();
  ASSERT_EQ(report["tasks"].size(), 2u);
  EXPECT_EQ(report["tasks"][0]["count"], 1);
  EXPECT_EQ(report["tasks"][1]["count"], 50);
  EXPECT_LT(report["tasks"][0]["trials"], report["tasks"][1]["trials"]);
  ASSERT_EQ(report["checks"].size(), 2u);
  EXPECT_EQ(report["checks"][1]["sizes"], (nlohmann::json{{"batch", 2}}));
  EXPECT_EQ(report["checks"][1]["ok"], true);
  // Both plans are built of the records.
  const CliResult built = Cli({"build", "conv2d", "--h", "8", "--w", "8", "--ci", "8", "--co", "8", "--target", kTarget,
                               "--dim", "batch=1,2", "--history", Path("h.db"), "--out", Path("p"), "--json"});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(built.err, "");
  const nlohmann::json plans = built.json()["plans"];
  for (const auto& plan : plans) {
    EXPECT_EQ(plan["check"]["ok"], true);
    EXPECT_GT(plan["tasks"][0]["record"], 0);
    EXPECT_GT(plan["latency_us"], 0);
  }
}

TEST_F(Dims, AJobTunesAllSizes) {
  Process service({"serve", "--listen", OwnLoopback(), "--history", Path("h.db")}, Path("serve"));
  const std::string address = service.Address();
  ASSERT_NE(address, "") << service.err();
  auto worker = Worker(address, "worker");
  const CliResult job =
      Cli(With("submit", "encoder.onnx",
               {"--dim", "seq=4,8", "--weight", "seq=8:3", "--weight", "2", "--trials", "8", "--trials-per-round", "2",
                "--min-repeat-ms", "1", "--service", address, "--wait", "--json"}));
  ASSERT_EQ(job.code, 0) << job.err << service.err();
  EXPECT_EQ(job.json()["state"], "done");
  EXPECT_EQ(job.json()["weight"], 2);
  EXPECT_EQ(job.json()["dims"], (nlohmann::json{{"seq", {4, 8}}}));
  EXPECT_EQ(job.json()["check"]["ok"], true);
  const std::string text = job.json()["check"]["text"];
  EXPECT_EQ(text.rfind("seq=4: network check ok", 0), 0u) << text;
  EXPECT_NE(text.find("\nseq=8: network check ok"), std::string::npos) << text;
  const auto tasks = Cli(With("tasks", "encoder.onnx", {"--dim", "seq=4,8", "--json"})).json()["tasks"];
  EXPECT_EQ(job.json()["tasks"].size(), tasks.size());
  // Refused by the service as `tune` refuses it.
  ExpectError(Cli(With("submit", "encoder.onnx", {"--dim", "length=4", "--service", address})),
              "cannot import 'encoder.onnx': it has no symbolic dimension 'length': it has 'batch', 'seq'");
  service.Signal(SIGTERM);
  EXPECT_EQ(service.Wait(), 0) << service.err();
}

}  // namespace
}  // namespace diapason
