#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/environment.h"
#include "base/run_program.h"
#include "gmock/gmock.h"
#include "tests/cli/process.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

class CompletionTest : public CliTest {
 protected:
  void Write(const std::string& shell, const std::string& file) {
    const CliResult result = Cli({"completion", shell});
    ASSERT_EQ(result.code, 0) << result.err;
    std::ofstream(Path(file)) << result.out;
  }
  // What bash offers behind these words, the last of which is being typed.
  std::vector<std::string> Bash(const std::vector<std::string>& words) {
    std::string script = "source " + Path("diapason.bash") + "\nCOMP_WORDS=(";
    for (const std::string& word : words) script += " '" + word + "'";
    script += ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_diapason\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
    std::ofstream(Path("ask.bash")) << script;
    const auto done = RunProgram({.args = {"bash", Path("ask.bash")}, .environment = CleanEnvironment()});
    EXPECT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->exit_code, 0) << done->errors;
    EXPECT_EQ(done->errors, "");
    std::vector<std::string> offered;
    std::istringstream lines(done->output);
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) offered.push_back(line);
    return offered;
  }
};

TEST_F(CompletionTest, BashOffersCommandsOptionsAndTheirValues) {
  Write("bash", "diapason.bash");
  EXPECT_THAT(Bash({"diapason", "tu"}), ElementsAre("tune"));
  EXPECT_THAT(Bash({"diapason", ""}), IsSupersetOf({"build", "run", "export-kernels", "history"}));
  EXPECT_THAT(Bash({"diapason", "history", ""}), IsSupersetOf({"info", "check", "export", "import"}));
  EXPECT_THAT(Bash({"diapason", "history", "check", "--js"}), ElementsAre("--json"));
  EXPECT_THAT(Bash({"diapason", "tune", "resnet-18", "--tar"}), ElementsAre("--target"));
  EXPECT_THAT(Bash({"diapason", "tune", "resnet-1"}), ElementsAre("resnet-18", "resnet-101", "resnet-152"));
  EXPECT_THAT(Bash({"diapason", "tasks", "gemm", "--layout", ""}), ElementsAre("NHWC", "NCHW"));
  EXPECT_THAT(Bash({"diapason", "tasks", "gemm", "--layout", "=", "NC"}), ElementsAre("NCHW"));
  EXPECT_THAT(Bash({"diapason", "completion", ""}), ElementsAre("bash", "zsh", "fish"));
  // A file: left to the shell.
  EXPECT_THAT(Bash({"diapason", "build", "gemm", "--history", ""}), IsEmpty());
  // Options of other commands are not offered.
  EXPECT_THAT(Bash({"diapason", "devices", "--"}), Not(Contains("--history")));
}

// Of shells that the tests do without, the grammar is checked where they are.
TEST_F(CompletionTest, OtherShellsAcceptTheirs) {
  int checked = 0;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    Write(shell, "completion." + shell);
    EXPECT_THAT(ReadText(Path("completion." + shell)), HasSubstr("export-kernels"));
    const auto done =
        RunProgram({.args = {shell, "-n", Path("completion." + shell)}, .environment = CleanEnvironment()});
    if (absl::IsNotFound(done.status())) continue;
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->exit_code, 0) << shell << ": " << done->errors;
    ++checked;
  }
  EXPECT_GE(checked, 1);
}

TEST_F(CompletionTest, AnotherShellIsRefused) {
  ExpectError(Cli({"completion", "csh"}), "SHELL csh: give bash or zsh or fish", 2);
}

// lexgrog reads the name and what the page is about, as apropos does; groff warns of wrong requests.
TEST_F(CompletionTest, EachCommandHasAManualPage) {
  const CliResult result = Cli({"man", "--out", Path("man")});
  ASSERT_EQ(result.code, 0) << result.err;
  int pages = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Path("man"))) {
    ++pages;
    const std::string page = entry.path().string(), name = entry.path().stem().string();
    const auto whatis = RunProgram({.args = {"lexgrog", page}, .environment = CleanEnvironment()});
    if (whatis.ok()) {
      EXPECT_EQ(whatis->exit_code, 0) << page;
      EXPECT_THAT(whatis->output, HasSubstr("\"" + name + " - ")) << page;
    }
    const auto groff =
        RunProgram({.args = {"groff", "-man", "-Tascii", "-ww", page}, .environment = CleanEnvironment()});
    if (groff.ok()) {
      EXPECT_EQ(groff->exit_code, 0) << page;
      EXPECT_EQ(groff->errors, "") << page;
    }
  }
  EXPECT_GT(pages, 30);
  const std::string tune = ReadText(Path("man/diapason-tune.1"));
  EXPECT_THAT(tune, HasSubstr(".SH NAME\ndiapason\\-tune \\- Search for fast schedules"));
  EXPECT_THAT(tune, HasSubstr("\\fB\\-\\-history\\fR \\fIFILE\\fR"));
}

}  // namespace
}  // namespace diapason
