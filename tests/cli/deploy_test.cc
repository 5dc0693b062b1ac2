// What lies in deploy/ fits the program.
#include <regex>

#include "tests/cli/process.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

// Every flag that a unit uses or suggests is one of its command's.
TEST(Systemd, UnitsUseFlagsThatThereAre) {
  int units = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DIAPASON_DEPLOY "/systemd")) {
    const std::string text = ReadText(entry.path());
    std::smatch command;
    ASSERT_TRUE(std::regex_search(text, command, std::regex(R"(ExecStart=/opt/diapason/bin/diapason (\w+) )"))) << entry.path();
    const CliResult help = Cli({command[1], "--help"});
    ASSERT_EQ(help.code, 0) << command[1];
    const std::regex flag(R"(\s"?(--[a-z-]+))");
    int flags = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), flag), end; it != end; ++it, ++flags)
      EXPECT_NE(help.out.find((*it)[1]), std::string::npos) << entry.path() << " uses " << (*it)[1];
    EXPECT_GE(flags, 3);
    ++units;
  }
  EXPECT_EQ(units, 3);
}

}  // namespace
}  // namespace diapason
