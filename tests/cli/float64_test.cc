// Models of type float64 through the commands: what is said of them, and what their packages take and give.
#include <fstream>

#include "api/tensor_file.h"
#include "onnx/onnx_pb.h"
#include "tests/cli/fleet_fixture.h"
#include "tests/graph/onnx/model_builder.h"

namespace diapason {
namespace {

const std::string kTarget = "cpu -num-cores=1";
const std::string kWarning =
    "warning: the model has 3 tensors of type float64 (the first is 'x'), computed in float32; float32 is also the "
    "type of its input 'x' and output 'y'\n";
const std::string kRefusal =
    "the model has 3 tensors of type float64 (the first is 'x'), which --strict refuses: leave it out to compute in "
    "float32, or export the model in "
    "float32";

Array Doubles(std::vector<int64_t> shape, const std::vector<double>& values) {
  Array array(DType::kFloat64, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) array.set(static_cast<int64_t>(i), values[i]);
  return array;
}

class Float64Cli : public FleetCli {
 protected:
  void SetUp() override {
    FleetCli::SetUp();
    ModelBuilder m(17);
    m.Input("x", {"batch", 2}, DType::kFloat64).Initializer("weight", Doubles({2, 2}, {1, 2, 3, 4}));
    m.Node("MatMul", {"x", "weight"}, {"y"}).Output("y", DType::kFloat64);
    std::ofstream(Path("m.onnx"), std::ios::binary) << m.Bytes();
  }
  CliResult With(const std::string& command, std::vector<std::string> more) const {
    more.insert(more.begin(), {command, Path("m.onnx"), "--target", kTarget});
    return Cli(more);
  }
};

TEST_F(Float64Cli, IsComputedInFloat32WithOneWarning) {
  const CliResult tasks = With("tasks", {"--dim", "batch=1,2"});
  ASSERT_EQ(tasks.code, 0) << tasks.err;
  EXPECT_EQ(tasks.err, kWarning);
  EXPECT_EQ(tasks.out.rfind("input x: float32 batchx2\n", 0), 0u) << tasks.out;

  const CliResult built = With("build", {"--out", Path("p"), "--dim", "batch=1,2"});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(built.err.rfind(kWarning, 0), 0u) << built.err;

  ASSERT_TRUE(api::WriteNpyFile(Path("x.npy"), Doubles({2, 2}, {1, 0, 0.5, 1})).ok());
  const CliResult run =
      Cli({"run", Path("p"), "--input", "x=" + Path("x.npy"), "--check", "--output-dir", Path("out")});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("\noutput y: float32 2x2\ncheck ok"), std::string::npos) << run.out;
  const Array y = api::ReadTensorFile(Path("out") + "/y.npy").value();
  ASSERT_EQ(y.dtype, DType::kFloat32);
  const double want[] = {1, 2, 3.5, 5};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y.at(i), want[i]);
}

TEST_F(Float64Cli, IsRefusedWhereAskedTo) {
  ExpectError(With("tasks", {"--strict"}), kRefusal);
  ExpectError(With("tune", {"--strict", "--history", Path("h.db")}), kRefusal);
  ExpectError(With("build", {"--strict", "--out", Path("p")}), kRefusal);
  EXPECT_FALSE(std::filesystem::exists(Path("h.db")));
  EXPECT_FALSE(std::filesystem::exists(Path("p")));
}

TEST_F(Float64Cli, AJobWarnsAndRefusesToo) {
  Process service({"serve", "--listen", OwnLoopback(), "--history", Path("h.db")}, Path("service"));
  const std::string address = service.Address();
  ASSERT_NE(address, "") << service.err();
  const CliResult strict = With("submit", {"--strict", "--service", address, "--trials", "1"});
  ExpectError(strict, kRefusal);
  auto worker = Worker(address, "w");
  const CliResult job =
      With("submit", {"--service", address, "--trials", "1", "--min-repeat-ms", "1", "--wait", "--json"});
  ASSERT_EQ(job.code, 0) << job.err;
  EXPECT_NE(job.err.find(kWarning), std::string::npos) << job.err;
  EXPECT_EQ(job.json()["warnings"][0], kWarning.substr(9, kWarning.size() - 10));
}

}  // namespace
}  // namespace diapason
