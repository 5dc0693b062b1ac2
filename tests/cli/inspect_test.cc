// diapason inspect: models and packages.
#include <fstream>

#include "onnx/onnx_pb.h"
#include "tests/cli/testing.h"
#include "tests/graph/onnx/model_builder.h"

namespace diapason {
namespace {

class Inspect : public CliTest {
 protected:
  // Rows of four, twice as large; the output's shape is declared.
  std::string Doubled() {
    ModelBuilder m(17);
    m.Input("x", {"batch", 4})
        .Input("mask", {"batch", "?"}, DType::kInt64)
        .Initializer("two", Array::FromFloats({4}, {2, 2, 2, 2}));
    m.Node("Mul", {"x", "two"}, {"scaled"})
        .Node("Relu", {"scaled"}, {"y"})
        .Node("Relu", {"x"}, {"z"})
        .Output("y")
        .Output("z");
    auto& shape = *m.proto().mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
    shape.add_dim()->set_dim_param("batch");
    shape.add_dim()->set_dim_value(4);
    const std::string path = Path("doubled.onnx");
    std::ofstream(path, std::ios::binary) << m.Bytes();
    return path;
  }
};

TEST_F(Inspect, ShowsAModelAsItIsDeclared) {
  const std::string path = Doubled();
  const CliResult text = Cli({"inspect", path});
  EXPECT_EQ(text.err, "");
  EXPECT_EQ(text.out, "model " + path +
                          ": ONNX, opset 17, 4 parameters (16 B)\n"
                          "input x: float32 batchx4\n"
                          "input mask: int64 batchxmask.1\n"
                          "output y: float32 batchx4\n"
                          "output z: float32 of any shape\n"
                          "3 operators: Relu 2, Mul 1\n");
  const auto json = Cli({"inspect", path, "--json"}).json();
  EXPECT_EQ(json["kind"], "model");
  EXPECT_EQ(json["opset"], 17);
  EXPECT_EQ(json["inputs"][0], (nlohmann::json{{"name", "x"}, {"dtype", "float32"}, {"shape", {"batch", 4}}}));
  EXPECT_TRUE(json["outputs"][1]["shape"].is_null());
  EXPECT_EQ(json["operators"], (nlohmann::json{{"Relu", 2}, {"Mul", 1}}));
  EXPECT_EQ(json["weights_bytes"], 16);
}

TEST_F(Inspect, ShowsTheShapesThatSizesGive) {
  const std::string path = Doubled();
  const CliResult text = Cli({"inspect", path, "--dim", "batch=3", "--dim", "mask.1=2"});
  EXPECT_EQ(text.err, "");
  EXPECT_NE(
      text.out.find("input x: float32 3x4\ninput mask: int64 3x2\noutput y: float32 3x4\noutput z: float32 3x4\n"),
      std::string::npos)
      << text.out;
  ExpectError(Cli({"inspect", path, "--dim", "batch=3,4"}),
              "a model is shown with one size for each symbolic dimension; give one, or none to see the symbols");
}

TEST_F(Inspect, ShowsABuiltInNetwork) {
  const CliResult text = Cli({"inspect", "resnet-18", "--set", "image=64"});
  EXPECT_EQ(text.err, "");
  EXPECT_EQ(text.out.rfind("model resnet-18: built-in network, ", 0), 0u) << text.out;
  EXPECT_NE(text.out.find("\ninput data: float32 batchx64x64x3\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\noutput output: float32 1x1000\n"), std::string::npos) << text.out;
  EXPECT_NE(Cli({"inspect", "resnet-18", "--batch", "2"}).out.find("\ninput data: float32 2x224x224x3\n"),
            std::string::npos);
}

TEST_F(Inspect, ShowsAPackage) {
  const CliResult built = Cli({"build", Doubled(), "--target", "cpu -num-cores=1", "--dim", "mask.1=1", "--no-check",
                               "--no-measure", "--out", Path("package")});
  ASSERT_EQ(built.code, 0) << built.err;
  const auto json = Cli({"inspect", Path("package"), "--json"}).json();
  EXPECT_EQ(json["kind"], "package");
  EXPECT_EQ(json["network"], "doubled");
  EXPECT_EQ(json["target"], "cpu -num-cores=1");
  EXPECT_NE(json["device"], "");
  EXPECT_EQ(json["inputs"][0]["name"], "x");
  EXPECT_EQ(json["outputs"].size(), 2u);
  EXPECT_GE(json["weights_bytes"], 16);
  ASSERT_EQ(json["plans"].size(), 1u);
  int64_t kernels = 0;
  for (const auto& task : json["plans"][0]["tasks"]) {
    EXPECT_TRUE(task["record"].is_null());
    kernels += static_cast<int64_t>(task["count"]) * static_cast<int64_t>(task["kernel_count"]);
  }
  EXPECT_EQ(json["plans"][0]["kernel_count"], kernels);
  EXPECT_GE(kernels, 2);
}

// Whether the first plan can say it or not: of size 1, nothing is ever padded to it.
TEST_F(Inspect, ShowsTheSymbolsOfOutputs) {
  for (const char* batch : {"batch=1,4", "batch=4", "batch=2,4"}) {
    const CliResult built = Cli({"build", Doubled(), "--target", "cpu -num-cores=1", "--dim", "mask.1=1", "--dim",
                                 batch, "--no-check", "--no-measure", "--out", Path("package")});
    ASSERT_EQ(built.code, 0) << built.err;
    const CliResult text = Cli({"inspect", Path("package")});
    EXPECT_NE(text.out.find("\noutput y: float32 batchx4\noutput z: float32 batchx4\n"), std::string::npos)
        << batch << ": " << text.out;
    const auto json = Cli({"inspect", Path("package"), "--json"}).json();
    EXPECT_EQ(json["outputs"][0]["shape"], (nlohmann::json{"batch", 4})) << batch;
  }
}

TEST_F(Inspect, ShowsThePackageOfFixedShapesWithItsTasks) {
  ASSERT_EQ(Cli({"build", "gemm", "--m", "4", "--n", "4", "--k", "4", "--target", "cpu -num-cores=1", "--no-check",
                 "--no-measure", "--out", Path("p")})
                .code,
            0);
  const CliResult text = Cli({"inspect", Path("p")});
  EXPECT_EQ(text.err, "");
  EXPECT_EQ(text.out.rfind("package " + Path("p") + ": gemm for cpu -num-cores=1, built for ", 0), 0u) << text.out;
  EXPECT_NE(text.out.find("\ninput a: float32 4x4\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("\ntask        count  kernels  estimated us  record  schedule\ngemm_4x4x4      1"),
            std::string::npos)
      << text.out;
  ExpectError(Cli({"inspect", Path("p"), "--batch", "2"}),
              Path("p") + " is a package, which has its sizes: leave out the options of models");
}

TEST_F(Inspect, APackageMayBeOneFile) {
  const std::string file = Path("p.dpk");
  ASSERT_EQ(
      Cli({"build", "gemm", "--m", "4", "--n", "4", "--k", "4", "--target", "cpu -num-cores=1", "--out", file}).code,
      0);
  ASSERT_TRUE(std::filesystem::is_regular_file(file));
  const CliResult text = Cli({"inspect", file});
  EXPECT_EQ(text.err, "");
  EXPECT_EQ(text.out.rfind("package " + file + ": gemm for cpu -num-cores=1, built for ", 0), 0u) << text.out;
  const CliResult run = Cli({"run", file, "--check"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("check ok"), std::string::npos) << run.out;
  EXPECT_EQ(Cli({"profile", file, "--duration", "0.01", "--warm-up-ms", "1"}).code, 0);
  // Built again, it is replaced.
  EXPECT_EQ(
      Cli({"build", "gemm", "--m", "4", "--n", "4", "--k", "4", "--target", "cpu -num-cores=1", "--out", file}).code,
      0);
}

TEST_F(Inspect, SaysWhatCannotBeRead) {
  ExpectError(Cli({"inspect", Path("none.onnx")}),
              "cannot read the model '" + Path("none.onnx") +
                  "': No such file or directory; give an .onnx file or the name of a built-in network");
  std::ofstream(Path("bad.onnx")) << "no model";
  ExpectError(
      Cli({"inspect", Path("bad.onnx")}),
      "cannot read '" + Path("bad.onnx") + "': it is no ONNX model, or it was cut off: export or download it again");
  std::filesystem::create_directory(Path("folder"));
  const CliResult folder = Cli({"inspect", Path("folder")});
  EXPECT_EQ(folder.code, 1);
  EXPECT_NE(folder.err.find(Path("folder")), std::string::npos) << folder.err;
}

}  // namespace
}  // namespace diapason
