// What lies in deploy/ fits the program.
#include <regex>

#include "tests/cli/process.h"
#include "tests/cli/testing.h"
#include "tests/paths.h"

namespace diapason {
namespace {

// Every flag that a unit uses or suggests is one of its command's.
TEST(Systemd, UnitsUseFlagsThatThereAre) {
  int units = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TEST_PATH(DIAPASON_DEPLOY) + "/systemd")) {
    const std::string text = ReadText(entry.path());
    std::smatch command;
    ASSERT_TRUE(std::regex_search(text, command, std::regex(R"(ExecStart=/opt/diapason/bin/diapason (\w+) )")))
        << entry.path();
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

// Trackers and services are asked through their health service, by systemd's watchdog and by all probes of Kubernetes.
TEST(Systemd, WhatListensHasAWatchdog) {
  for (const char* unit : {"tracker", "service"}) {
    const std::string text = ReadText(TEST_PATH(DIAPASON_DEPLOY) + "/systemd/diapason-" + unit + ".service");
    for (const char* line : {"\nType=notify\n", "\nNotifyAccess=main\n", "\nWatchdogSec=60\n",
                             "\nTimeoutStartSec=10min\n", "\nRestart=always\n"})
      EXPECT_NE(text.find(line), std::string::npos) << unit << " has no line" << line;
  }
}

TEST(Kubernetes, ProbesAskTheHealthService) {
  const std::string help = Cli({"fleet", "health", "--help"}).out;
  for (const char* file : {"tracker", "service"}) {
    const std::string text = ReadText(TEST_PATH(DIAPASON_DEPLOY) + "/kubernetes/" + file + ".yaml");
    for (const char* probe : {"readinessProbe", "livenessProbe", "startupProbe"}) {
      const std::regex asks(
          std::string(probe) +
          R"(:\n +exec:\n +command:\n +- /opt/diapason/bin/diapason\n +- fleet\n +- health\n((?: +- --[a-z-]+=\S+\n)+))");
      std::smatch found;
      ASSERT_TRUE(std::regex_search(text, found, asks)) << file << " " << probe;
      const std::string given = found[1];
      const std::regex flag(R"((--[a-z-]+)=)");
      int flags = 0;
      for (std::sregex_iterator it(given.begin(), given.end(), flag), end; it != end; ++it, ++flags)
        EXPECT_NE(help.find((*it)[1]), std::string::npos) << file << " " << probe << " uses " << (*it)[1];
      EXPECT_EQ(flags, 4) << given;
    }
  }
}

// The batch script becomes a worker of the job's name, with the flags behind the script's.
TEST(SlurmScript, BecomesAWorker) {
  const std::string script = TEST_PATH(DIAPASON_DEPLOY) + "/slurm/worker.sbatch";
  auto run = [&](const std::string& environment, const std::string& flags) {
    FILE* pipe =
        popen(("env -i PATH=/usr/bin:/bin " + environment + " bash " + script + " " + flags + " 2>&1").c_str(), "r");
    std::string out;
    for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) out += static_cast<char>(c);
    pclose(pipe);
    return out;
  };
  EXPECT_EQ(run("SLURM_JOB_ID=42 DIAPASON=/bin/echo", "--tracker h:1 --devices 'cuda:*'"),
            "worker --name slurm-42 --tracker h:1 --devices cuda:*\n");
  EXPECT_NE(run("DIAPASON=/bin/echo", "").find("started by sbatch only"), std::string::npos);
  const std::string text = ReadText(script), help = Cli({"worker", "--help"}).out;
  const std::regex flag(R"(\s(--(?:tracker|devices|token-file|tls-cert|name|drain))\b)");
  int flags = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), flag), end; it != end; ++it, ++flags)
    EXPECT_NE(help.find((*it)[1]), std::string::npos) << (*it)[1];
  EXPECT_GE(flags, 6);
}

}  // namespace
}  // namespace diapason
