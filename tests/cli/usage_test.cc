#include "gmock/gmock.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

constexpr int kUsage = 2;

TEST(Usage, EveryCommandHasHelp) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{{},
                                                                                       {"networks"},
                                                                                       {"devices"},
                                                                                       {"tasks"},
                                                                                       {"tune"},
                                                                                       {"build"},
                                                                                       {"run"},
                                                                                       {"explain"},
                                                                                       {"query"},
                                                                                       {"history"},
                                                                                       {"history", "info"},
                                                                                       {"history", "check"},
                                                                                       {"history", "export"},
                                                                                       {"history", "import"},
                                                                                       {"history", "copy"},
                                                                                       {"history", "prune"}}) {
    std::vector<std::string> args = command;
    args.push_back("--help");
    const CliResult result = Cli(args);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("Usage: "), std::string::npos) << result.out;
    EXPECT_EQ(result.err, "");
  }
}

TEST(Usage, ErrorsNameWhatIsWrongAndTheMend) {
  ExpectError(Cli({}), "no command is given; `diapason --help` lists them", kUsage);
  ExpectError(Cli({"frobnicate"}), "unknown command frobnicate; `diapason --help` lists them", kUsage);
  ExpectError(Cli({"networks", "--color"}),
              "unknown argument --color; `diapason networks --help` lists those that it takes", kUsage);
  ExpectError(Cli({"query"}), "a query reads one history; give either --history or --service");
  ExpectError(Cli({"query", "--history", "h.db", "--top", "0"}), "--top 0: give a whole number of at least 1", kUsage);
  ExpectError(Cli({"query", "--history", "h.db", "--top", "many"}), "--top many: give a whole number of at least 1",
              kUsage);
  ExpectError(Cli({"query", "--history"}), "--history needs a value; see `diapason query --help`", kUsage);
  ExpectError(Cli({"history"}), "no command is given; `diapason history --help` lists them", kUsage);
  ExpectError(Cli({"history", "mend", "h.db"}), "unknown command mend; `diapason history --help` lists them", kUsage);
  ExpectError(Cli({"history", "check"}), "HISTORY is missing; `diapason history check --help` shows what to give",
              kUsage);
}

TEST(Usage, WithJsonAnErrorIsADocument) {
  const CliResult unknown = Cli({"query", "--history", "/nowhere/h.db", "--json"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(unknown.json()["schema"], "diapason.error/1");
  EXPECT_EQ(unknown.json()["code"], "NOT_FOUND");
  EXPECT_EQ(unknown.err, "error: " + std::string(unknown.json()["error"]) + "\n");
  const CliResult mistyped = Cli({"querry", "--json"});
  EXPECT_EQ(mistyped.code, kUsage);
  EXPECT_EQ(mistyped.json()["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(mistyped.json()["error"], "unknown command querry; did you mean 'query'? `diapason --help` lists them");
}

TEST(Usage, MistypedNamesAreRecognized) {
  ExpectError(Cli({"tunes"}), "unknown command tunes; did you mean 'tune'? `diapason --help` lists them", kUsage);
  ExpectError(Cli({"history", "chekc"}),
              "unknown command chekc; did you mean 'check'? `diapason history --help` lists them", kUsage);
  ExpectError(Cli({"build", "resnet-18", "--taget", "cpu", "--out", "p"}),
              "unknown argument --taget; did you mean '--target'? `diapason build --help` lists those that it takes",
              kUsage);
  ExpectError(
      Cli({"build", "resnet-18", "--target", "cpu", "--out", "p", "--hsitory=h.db"}),
      "unknown argument --hsitory=h.db; did you mean '--history'? `diapason build --help` lists those that it takes",
      kUsage);
  ExpectError(Cli({"tasks", "resnet-18", "--target", "cpu", "--imge", "64"}),
              "unknown argument --imge; did you mean '--image'? `diapason tasks --help` lists those that it takes",
              kUsage);
  ExpectError(Cli({"tasks", "resnet-18", "--target", "cpu", "--set", "imag=64"}),
              "network 'resnet-18' has no option 'imag': did you mean 'image'? its options are image, classes, width, "
              "softmax, seed");
  ExpectError(Cli({"tasks", "resnet-18", "--target", "cdua"}),
              "target \"cdua\": unknown kind 'cdua': did you mean 'cuda'? use cpu, opencl or cuda");
}

TEST(Usage, VersionIsPrinted) {
  const CliResult result = Cli({"--version"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out,
              testing::MatchesRegex("diapason 0\\.1\\.0\ncommit ([0-9a-f]+(-dirty)?|unknown)\n"
                                    "built [A-Za-z]+ by [A-Za-z]+ [0-9.]+, with(out)? cuda, with(out)? opencl.*\n"));
}

TEST(Networks, AreListedWithTheirOptions) {
  const CliResult text = Cli({"networks"});
  EXPECT_EQ(text.code, 0);
  const auto json = Cli({"networks", "--json"}).json();
  std::vector<std::string> names;
  for (const auto& network : json["networks"]) {
    names.push_back(network["network"]);
    EXPECT_NE(text.out.find(names.back()), std::string::npos);
  }
  for (const char* name : {"resnet-18", "resnet-34", "resnet-50", "resnet-101", "resnet-152", "mobilenet",
                           "squeezenet_v1.1", "bert-base", "gpt2", "swin-tiny", "conv2d", "depthwise", "gemm"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

TEST(Networks, ShowTheOptionsOfOne) {
  const CliResult text = Cli({"networks", "resnet-18"});
  EXPECT_EQ(text.code, 0);
  for (const char* word : {"resnet-18: ", "\nimage        224  ", "\nseed           0  "})
    EXPECT_NE(text.out.find(word), std::string::npos) << text.out;
  const auto json = Cli({"networks", "resnet-18", "--json"}).json();
  ASSERT_EQ(json["networks"].size(), 1u);
  EXPECT_EQ(json["networks"][0]["options"][0]["name"], "image");
  EXPECT_EQ(Cli({"tune", "--help"}).out.find("--image"), std::string::npos)
      << "the options of networks would be most of the help";
  ExpectError(Cli({"networks", "resnet"}),
              "unknown network 'resnet': did you mean 'resnet-18'? `diapason networks` lists them");
}

TEST(Devices, BeginWithTheProcessor) {
  const auto json = Cli({"devices", "--json"}).json();
  ASSERT_FALSE(json["devices"].empty());
  const auto& cpu = json["devices"][0];
  EXPECT_EQ(std::string(cpu["target"]).substr(0, 3), "cpu");
  EXPECT_NE(cpu["device"], "");
  EXPECT_GE(cpu["cores"], 1);
  const std::string text = Cli({"devices"}).out;
  EXPECT_NE(text.find("--target \"cpu"), std::string::npos);
  const char* vectors = cpu["vector_bytes"] >= 64 ? ", AVX-512\n" : cpu["vector_bytes"] >= 32 ? ", AVX2\n" : ", SSE\n";
  if (cpu["arch"] == "x86-64") {
    EXPECT_NE(text.find(std::string(cpu["device"]) + vectors), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace diapason
