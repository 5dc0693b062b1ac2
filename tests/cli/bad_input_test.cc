// Each kind of bad input, with the full text of its message.
#include <dlfcn.h>

#include <fstream>

#include "tests/cli/testing.h"

namespace diapason {
namespace {

constexpr int kUsage = 2;

class BadInput : public CliTest {
 protected:
  CliResult Tune(std::vector<std::string> more, const std::string& model = "gemm", const std::string& target = "cpu") {
    std::vector<std::string> args = {"tune", model, "--target", target, "--history", Path("h.db")};
    args.insert(args.end(), more.begin(), more.end());
    return Cli(args);
  }
  // Nothing of a refused command is left behind.
  void TearDown() override {
    EXPECT_FALSE(std::filesystem::exists(Path("h.db")));
    CliTest::TearDown();
  }
};

TEST_F(BadInput, NumbersOutOfRange) {
  const std::string whole = ": give a whole number of at least 1";
  ExpectError(Tune({"--trials", "0"}), "--trials 0" + whole, kUsage);
  ExpectError(Tune({"--trials", "-5"}), "--trials -5" + whole, kUsage);
  ExpectError(Tune({"--trials", "ten"}), "--trials ten" + whole, kUsage);
  ExpectError(Tune({"--trials", "1.5"}), "--trials 1.5" + whole, kUsage);
  ExpectError(Tune({"--trials", "99999999999999999999"}), "--trials 99999999999999999999" + whole, kUsage);
  ExpectError(Tune({"--seconds", "0"}), "--seconds 0: give a number above 0", kUsage);
  ExpectError(Tune({"--seconds", "inf"}), "--seconds inf: give a number above 0", kUsage);
  ExpectError(Tune({"--repeat", "0"}), "--repeat 0: give a whole number from 1 to 1000", kUsage);
  ExpectError(Tune({"--builders", "0"}), "--builders 0: give a whole number from 1 to 1024", kUsage);
  ExpectError(Tune({"--seed", "-1"}), "--seed -1: give a whole number of at least 0", kUsage);
  ExpectError(Tune({"--batch", "0"}), "--batch 0: give a whole number from 1 to 1048576", kUsage);
  ExpectError(Tune({"--layout", "CHWN"}), "--layout CHWN: give NHWC or NCHW", kUsage);
  ExpectError(Tune({"--dtype", "int4"}), "--dtype int4: give float32 or float16 or bfloat16 or tf32 or mixed", kUsage);
  ExpectError(
      Tune({"--dtype", "tf32"}),
      "--dtype tf32: the type is 'tf32' and the target \"cpu\", which has no TensorFloat-32; give float32, or a "
      "cuda target",
      kUsage);
  ExpectError(Tune({"--tolerance", "1e-3"}),
              "--dtype float32: the tolerance is 0.001 and the type 'float32'; only \"mixed\" has a tolerance", kUsage);
}

TEST_F(BadInput, WhatIsMissing) {
  ExpectError(Cli({"tune"}), "MODEL is missing; `diapason tune --help` shows what to give", kUsage);
  ExpectError(Cli({"tune", "gemm", "--history", "h.db"}),
              "--target is missing; `diapason tune --help` shows what to give", kUsage);
  ExpectError(Cli({"tune", "gemm", "--target", "cpu"}),
              "--history is missing; `diapason tune --help` shows what to give", kUsage);
  ExpectError(Cli({"build", "gemm", "--target", "cpu"}), "--out is missing; `diapason build --help` shows what to give",
              kUsage);
  ExpectError(Cli({"run"}), "PACKAGE is missing; `diapason run --help` shows what to give", kUsage);
  ExpectError(Cli({"explain", "--history", "h.db"}),
              "give --history and --record, as `diapason query` shows it, or MODEL with --target and --task");
}

TEST_F(BadInput, UnknownNetworks) {
  ExpectError(Tune({}, "resnet-19"),
              "unknown network 'resnet-19': did you mean 'resnet-18'? give an .onnx file or one of "
              "resnet-18, resnet-34, resnet-50, resnet-101, resnet-152, mobilenet, squeezenet_v1.1, "
              "mobilenet_v2, mobilenet_v3, efficientnet-b0, vgg-16, densenet-121, inception_v3, convnext-tiny, "
              "swin-tiny, vit-b16, resnet3d-18, unet-small, yolo-small, bert-base, gpt2, llama-tiny, "
              "t5-encoder, whisper-encoder, lstm-tagger, conv2d, depthwise, gemm, attention, layer_norm");
  ExpectError(Tune({"--k", "0"}), "option 'k' of network 'gemm' cannot be '0': give a whole number from 1 to 1048576");
  ExpectError(Tune({"--set", "q=3"}),
              "network 'gemm' has no option 'q': its options are m, n, k, constant, bias, relu, int8, seed");
  ExpectError(Tune({"--set", "q"}), "--set q: write NAME=VALUE, with a name of `diapason networks`", kUsage);
  ExpectError(Tune({"--input-shape", "a"}), "--input-shape a is not understood; write it as NAME=1x3x224x224");
  ExpectError(Tune({"--input-shape", "a=1x-3"}), "the shape 1x-3 is not understood; write it as 1x3x224x224");
}

TEST_F(BadInput, UnknownTargets) {
  ExpectError(Tune({}, "gemm", "gpu"),
              "target \"gpu\": unknown kind 'gpu': did you mean 'cuda'? use cpu, opencl or cuda");
  ExpectError(Cli({"tune", "gemm", "--target", "cpu", "--history", Path("h.db"), "--without", "strassen,direct"}),
              "--without has 'direct', which is no algorithm that can be left out; name one or more of "
              "attention,gemm,halves,padded,rows,strassen,winograd");
  ExpectError(Tune({}, "gemm", "cpu -foo=1"),
              "target \"cpu -foo=1\": unknown attribute '-foo': cpu takes -mcpu=native, -num-cores=2, "
              "-mtriple=aarch64-linux-gnu and -caches=warm");
}

TEST_F(BadInput, NoDeviceToMeasureOn) {
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    dlclose(driver);
    GTEST_SKIP() << "the driver is here";
  }
  ExpectError(
      Tune({}, "gemm", "cuda"),
      "target 'cuda' needs the NVIDIA driver, and its library libcuda.so.1 is not on this machine; install the driver, "
      "or choose target 'cpu' or 'opencl'");
  EXPECT_EQ(Cli({"tasks", "gemm", "--target", "cuda"}).code, 0);
}

TEST_F(BadInput, ModelsThatAreNone) {
  ExpectError(Tune({}, Path("none.onnx")),
              "cannot read the model '" + Path("none.onnx") +
                  "': No such file or directory; give an .onnx file or the name of a built-in network");
  std::ofstream(Path("text.onnx")) << "this is no protobuf at all";
  ExpectError(
      Tune({}, Path("text.onnx")),
      "cannot import '" + Path("text.onnx") + "': it is no ONNX model, or it was cut off: export or download it again");
}

TEST_F(BadInput, TasksAndObjectivesThatAreNone) {
  ExpectError(Tune({"--objective", "targets:net=5ms"}),
              "the objective 'targets:net=5ms' names the network 'net', but this run tunes gemm: write sum, or "
              "targets:NETWORK=TIME,... as in targets:resnet-18=5ms");
  ExpectError(Tune({"--objective", "targets:gemm=5parsec"}),
              "the objective 'targets:gemm=5parsec' has '5parsec', which is no time in s, ms or us: write sum, or "
              "targets:NETWORK=TIME,... as in targets:resnet-18=5ms");
  ExpectError(
      Tune({"--tasks", "1,9"}),
      "--tasks 1,9 does not name tasks of this network; give ids from 1 to 1 as `diapason tasks` shows them, for "
      "example --tasks 1,4");
  ExpectError(Tune({"--objective", "fast"}),
              "the objective 'fast' is not known: write sum, or targets:NETWORK=TIME,... as in targets:resnet-18=5ms");
}

TEST_F(BadInput, HistoriesThatCannotBeWritten) {
  ExpectError(Cli({"tune", "gemm", "--target", "cpu", "--history", Path("no/h.db")}),
              "the folder of history '" + Path("no/h.db") + "' does not exist; create it or name another file");
  std::ofstream(Path("text.db")) << "not a database, but long enough to look like one at first sight";
  ExpectError(Cli({"tune", "gemm", "--target", "cpu", "--history", Path("text.db")}),
              "'" + Path("text.db") + "' is not a Diapason history (it is no SQLite database); name another file");
}

TEST_F(BadInput, PackagesThatAreNone) {
  ExpectError(Cli({"run", Path("none")}), "there is no file or folder '" + Path("none") +
                                              "'; name a folder or a .dpk file made by 'diapason build'");
  std::filesystem::create_directory(Path("full"));
  std::ofstream(Path("full/file")) << "mine";
  ExpectError(Cli({"run", Path("full")}),
              "'" + Path("full") +
                  "' is no package: it has no manifest.json; name a folder or a .dpk file made by 'diapason build'");
  const CliResult result =
      Cli({"build", "gemm", "--m", "8", "--n", "8", "--k", "8", "--target", "cpu", "--out", Path("full")});
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(
      result.err.find("error: '" + Path("full") +
                      "' holds files that are no part of a package; give --out a new or empty folder, or a package to "
                      "replace\n"),
      std::string::npos)
      << result.err;
  EXPECT_TRUE(std::filesystem::exists(Path("full/file")));
}

}  // namespace
}  // namespace diapason
