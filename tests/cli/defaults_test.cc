// Defaults of flags from the environment and from a configuration file.
#include "cli/defaults.h"

#include <fstream>

#include "cli/config_file.h"
#include "tests/cli/testing.h"

namespace diapason {
namespace {

constexpr int kWrongArguments = 2;

class DefaultsTest : public CliTest {
 protected:
  std::string Write(const std::string& text, const std::string& name = "diapason.toml") {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  // What `query` says of a history that is not there tells which one it took.
  CliResult Query(std::vector<std::string> more, const std::map<std::string, std::string>& variables = {}) {
    more.insert(more.begin(), "query");
    return Cli(more, "", variables);
  }
  std::string NoHistory(const std::string& path) { return Query({"--history", path}).err; }
};

TEST_F(DefaultsTest, AFileIsReadWithItsSectionsAndLines) {
  const auto file =
      ReadConfigFile(Write("tracker = \"host:1\"\n\n[tune]\nseconds = 600\n[fleet.status]\nwait = 2.5\n"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->entries.size(), 3u);
  EXPECT_EQ(file->entries[0].key, "tracker");
  EXPECT_EQ(file->entries[0].value, "host:1");
  EXPECT_EQ(file->entries[0].line, 1);
  EXPECT_EQ(file->entries[1].command, std::vector<std::string>{"tune"});
  EXPECT_EQ(file->entries[1].value, "600");
  EXPECT_EQ(file->entries[2].command, (std::vector<std::string>{"fleet", "status"}));
  EXPECT_EQ(file->entries[2].value, "2.5");
  EXPECT_EQ(file->entries[2].line, 6);
}

TEST_F(DefaultsTest, WhatIsTypedWinsOverTheEnvironmentAndThatOverTheFile) {
  const std::string config = Write("history = \"file.db\"\n");
  EXPECT_EQ(Query({"--config", config}).err, NoHistory(Path("file.db"))) << "relative to the file's folder";
  EXPECT_EQ(Query({"--config=" + config}, {{"DIAPASON_HISTORY", Path("variable.db")}}).err,
            NoHistory(Path("variable.db")));
  EXPECT_EQ(Query({"--config", config, "--history", Path("typed.db")}, {{"DIAPASON_HISTORY", Path("variable.db")}}).err,
            NoHistory(Path("typed.db")));
  EXPECT_EQ(Cli({"--config", config, "query"}).err, NoHistory(Path("file.db"))) << "in front of the command as well";
}

TEST_F(DefaultsTest, TheFileIsFoundInTheFolderOfConfigurations) {
  std::filesystem::create_directory(Path(".config"));
  Write("history = \"~/home.db\"\n", ".config/diapason.toml");
  EXPECT_EQ(Query({}, {{"HOME", Path("")}}).err, NoHistory(Path("") + "/home.db"));
  Write("history = \"/nowhere/xdg.db\"\n");
  EXPECT_EQ(Query({}, {{"HOME", Path("")}, {"XDG_CONFIG_HOME", Path("")}}).err, NoHistory("/nowhere/xdg.db"));
  const std::string named = Write("history = \"/nowhere/named.db\"\n", "named.toml");
  EXPECT_EQ(Query({}, {{"HOME", Path("")}, {"DIAPASON_CONFIG", named}}).err, NoHistory("/nowhere/named.db"));
  ExpectError(Query({}, {{"HOME", Path("none")}}), "a query reads one history; give either --history or --service");
}

TEST_F(DefaultsTest, ASectionHasTheFlagsOfItsCommand) {
  const std::string config =
      Write("history = \"/nowhere/all.db\"\n[query]\nhistory = \"/nowhere/query.db\"\ntop = 3\n");
  EXPECT_EQ(Query({"--config", config}).err, NoHistory("/nowhere/query.db"));
  EXPECT_EQ(Cli({"explain", "--record", "1", "--config", config}).err,
            Cli({"explain", "--record", "1", "--history", "/nowhere/all.db"}).err);
}

TEST_F(DefaultsTest, RequiredFlagsAndTargetsMayComeFromTheEnvironment) {
  const CliResult tasks = Cli({"tasks", "gemm", "--json"}, "", {{"DIAPASON_TARGET", "cpu -num-cores=1"}});
  EXPECT_EQ(tasks.code, 0) << tasks.err;
  EXPECT_EQ(tasks.json()["target"], "cpu -num-cores=1");
  ExpectError(Cli({"tasks", "gemm"}), "--target is missing; `diapason tasks --help` shows what to give",
              kWrongArguments);
  ExpectError(Cli({"fleet", "status"}, "", {{"DIAPASON_TRACKER", "nonsense"}}),
              "--tracker nonsense is not understood; write it as HOST:PORT, for example 127.0.0.1:9190");
  const std::vector<std::string> list = {"jobs", "list", "--service", "127.0.0.1:1", "--token-file", Path("no.token")};
  EXPECT_EQ(
      Cli({"jobs", "list"}, "", {{"DIAPASON_SERVICE", "127.0.0.1:1"}, {"DIAPASON_TOKEN_FILE", Path("no.token")}}).err,
      Cli(list).err);
  EXPECT_NE(Cli(list).err.find(Path("no.token")), std::string::npos) << Cli(list).err;
}

TEST_F(DefaultsTest, OfAHistoryAndAServiceTheTypedOneCounts) {
  const std::map<std::string, std::string> both = {{"DIAPASON_HISTORY", "/nowhere/h.db"},
                                                   {"DIAPASON_SERVICE", "nonsense"}};
  EXPECT_EQ(Query({"--history", "/nowhere/typed.db"}, both).err, NoHistory("/nowhere/typed.db"));
  ExpectError(Query({"--service", "typed"}, both),
              "--service typed is not understood; write it as HOST:PORT, for example 127.0.0.1:9190");
  ExpectError(Query({}, both), "a query reads one history; give either --history or --service");
}

TEST_F(DefaultsTest, ErrorsNameTheFileTheLineAndTheMend) {
  const auto expect = [&](const std::string& text, const std::string& sentence) {
    const std::string config = Write(text);
    ExpectError(Query({"--config", config}), config + ", line " + sentence, kWrongArguments);
  };
  expect("trakcer = \"host:1\"\n",
         "1: unknown key 'trakcer': did you mean 'tracker'? those of all commands are tracker, service, history, "
         "target, token-file, tokens, tls-cert, "
         "tls-key, tls-ca; flags of one command stand in its section, as in [tune]");
  expect("\n[tuen]\nseconds = 3\n",
         "3: there is no command 'tuen' for the section [tuen]; did you mean 'tune'? `diapason --help` lists them");
  expect("[tune]\nsecond = 3\n",
         "2: `diapason tune` has no flag --second that takes a value; did you mean 'seconds'? its --help lists them");
  expect("[tune]\nseconds = 0\n", "2: --seconds: 0: give a number above 0");
  expect("[tune]\nseconds = [1, 2]\n", "2: the value of 'seconds' is neither text in quotes nor a number");
  expect("[tune]\njson = true\n", "2: 'json' is a switch, and switches can only be typed");
  const std::string broken = Write("tracker = host\n");
  const CliResult no_toml = Query({"--config", broken});
  EXPECT_EQ(no_toml.code, kWrongArguments);
  EXPECT_EQ(no_toml.err.rfind("error: " + broken + ", line 1: this is no TOML (", 0), 0u) << no_toml.err;
  ExpectError(Query({"--config", Path("none.toml")}),
              "the configuration file " + Path("none.toml") +
                  " cannot be read (No such file or directory); name another with --config",
              kWrongArguments);
  ExpectError(Query({"--config", Path("")}),
              "the configuration file " + Path("") + " cannot be read (Is a directory); name another with --config",
              kWrongArguments);
  EXPECT_EQ(Cli({"query", "--help", "--config", broken}).code, 0) << "the help is there all the same";
}

}  // namespace
}  // namespace diapason
