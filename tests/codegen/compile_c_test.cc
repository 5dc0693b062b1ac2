#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "compiler/codegen/compile.h"
#include "compiler/codegen/temporary.h"

namespace diapason {
namespace {

// A fresh TMPDIR for the test, so that what is left in it can be seen, and a $CC of the test's.
class CompileC : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = (std::filesystem::temp_directory_path() / ("codegen-test-" + std::to_string(getpid()))).string();
    std::filesystem::create_directories(folder_ + "/tmp");
    setenv("TMPDIR", (folder_ + "/tmp").c_str(), 1);
  }
  void TearDown() override {
    EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/tmp"));
    unsetenv("TMPDIR");
    unsetenv("CC");
    std::filesystem::remove_all(folder_);
  }
  // Makes $CC a shell script.
  void UseScript(const std::string& text) {
    const std::string path = folder_ + "/cc.sh";
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    setenv("CC", path.c_str(), 1);
  }
  static absl::Status Compile(const std::string& source, double timeout = 30) {
    Program program;
    program.source = source;
    return CompileSource(program, timeout);
  }
  std::string folder_;
};

TEST_F(CompileC, FillsBinaryAndCompiler) {
  Program program;
  program.source = "int answer(void) { return 42; }";
  ASSERT_TRUE(CompileSource(program, 30).ok());
  EXPECT_EQ(program.binary.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_THAT(program.compiler, ::testing::AnyOf(::testing::HasSubstr("cc"), ::testing::HasSubstr("clang")));
}

// Each unit that the compiler was asked for is a line of a file.
TEST_F(CompileC, AUnitIsCompiledOnce) {
  const std::string log = folder_ + "/log";
  UseScript("case \"$*\" in *\" -c \"*) cat \"${*##* }\" >> " + log + "; echo >> " + log + ";; esac\nexec cc \"$@\"");
  auto count = [&](const std::string& text) {
    std::ifstream in(log);
    int lines = 0;
    for (std::string line; std::getline(in, line);) lines += line == text;
    return lines;
  };
  const std::string a = "int once_a(void) { return 1; }", b = "int once_b(void) { return 2; }",
                    c = "int once_c(void) { return 3; }";
  Program first, second;
  ASSERT_EQ(diapason::CompileC(first, {a, b}, 30), absl::OkStatus());
  ASSERT_EQ(diapason::CompileC(second, {b, c}, 30), absl::OkStatus());
  EXPECT_EQ(count(a), 1);
  EXPECT_EQ(count(b), 1);
  EXPECT_EQ(count(c), 1);
  // Another target is another object.
  second.target.mcpu = "x86-64";
  ASSERT_EQ(diapason::CompileC(second, {b}, 30), absl::OkStatus());
  EXPECT_EQ(count(b), 2);
}

TEST_F(CompileC, ThreadsThatNeedTheSameUnitsAllGetThem) {
  std::vector<std::string> units;
  for (int i = 0; i < 4; ++i)
    units.push_back("int shared_" + std::to_string(i) + "(void) { return " + std::to_string(i) + "; }");
  std::vector<Program> programs(4);
  std::vector<std::thread> threads;
  for (Program& program : programs)
    threads.emplace_back([&] { EXPECT_EQ(diapason::CompileC(program, units, 60), absl::OkStatus()); });
  for (std::thread& thread : threads) thread.join();
  for (const Program& program : programs) EXPECT_NE(program.binary.find("shared_3"), std::string::npos);
}

TEST_F(CompileC, AMissingCrossCompilerIsNamedWithItsPackage) {
  const Target target = Target::Parse("cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1").value();
  if (!target.is_foreign()) GTEST_SKIP() << "this machine is an aarch64";
  setenv("CC_aarch64_linux_gnu", "no-such-gcc", 1);
  const absl::Status status = FeaturesOf(target).status();
  Program program;
  program.target = target;
  const absl::Status compiled = CompileSource(program, 30);
  unsetenv("CC_aarch64_linux_gnu");
  EXPECT_EQ(status, absl::UnavailableError(
                        "no C compiler for aarch64-linux-gnu: \"no-such-gcc\" was not found; install Debian's package "
                        "gcc-aarch64-linux-gnu, or name a compiler in the environment variable CC_aarch64_linux_gnu"));
  EXPECT_EQ(compiled, status);
}

TEST_F(CompileC, UnknownProcessorsAreRefusedWithNearOnes) {
  Target target;
  target.mcpu = "hasswell";
  const absl::Status status = FeaturesOf(target).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("knows no processor 'hasswell': "));
#if defined(__x86_64__)
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("did you mean 'haswell'? it knows "));
  EXPECT_EQ(CheckRunsHere(target), status);
#endif
}

#if defined(__x86_64__)
TEST_F(CompileC, ProcessorsSayWhatTheyNeed) {
  Target target;
  target.mcpu = "haswell";
  const absl::StatusOr<std::string> haswell = FeaturesOf(target);
  ASSERT_TRUE(haswell.ok()) << haswell.status();
  EXPECT_THAT(*haswell, ::testing::HasSubstr(" avx2"));
  EXPECT_THAT(*haswell, ::testing::Not(::testing::HasSubstr("avx512")));
  target.mcpu = "skylake-avx512";
  EXPECT_THAT(FeaturesOf(target).value(), ::testing::HasSubstr(" avx512f"));
  // So do the objects.
  Program program;
  program.target = target;
  program.source = "int answer(void) { return 42; }";
  ASSERT_EQ(CompileSource(program, 30), absl::OkStatus());
  EXPECT_THAT(program.binary, ::testing::HasSubstr(" avx512f"));
}
#endif

TEST_F(CompileC, BadSourceIsInvalidArgumentWithTheFirstErrors) {
  UseScript(
      "case \"$*\" in *--version*) echo fake 1.0; exit 0;; esac\n"
      "echo kernels.c: In function f:\nfor i in 1 2 3 4 5 6 7; do echo \"kernels.c:$i: error: number $i\" >&2; done; "
      "exit 1");
  const absl::Status status = Compile("");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(std::string(status.message()),
            "the C compiler \"" + folder_ +
                "/cc.sh\" refused the generated source:\n"
                "kernels.c:1: error: number 1\nkernels.c:2: error: number 2\nkernels.c:3: error: number 3\n"
                "kernels.c:4: error: number 4\nkernels.c:5: error: number 5");
  unsetenv("CC");
  const absl::Status real = Compile("int f(void) { return no_such_variable; }");
  EXPECT_TRUE(absl::IsInvalidArgument(real));
  EXPECT_NE(std::string(real.message()).find("no_such_variable"), std::string::npos) << real;
}

TEST_F(CompileC, ReportsWithoutTheWordErrorGiveTheirFirstLines) {
  EXPECT_EQ(FirstErrors("one\ntwo\nthree\n", 2), "one\ntwo");
  EXPECT_EQ(FirstErrors("note\na: error: x\nb: error: y\n", 1), "a: error: x");
  EXPECT_EQ(FirstErrors(""), "");
}

TEST_F(CompileC, MissingCompilerIsUnavailableAndSaysHowToGetOne) {
  setenv("CC", "/no/such/compiler", 1);
  const absl::Status status = Compile("");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(std::string(status.message()),
            "no C compiler: \"/no/such/compiler\" was not found; install gcc or clang, or name a compiler in "
            "the environment variable CC");
}

TEST_F(CompileC, CompilerCommandsMayHaveArguments) {
  setenv("CC", "cc -DANSWER=42", 1);
  EXPECT_TRUE(Compile("int answer[ANSWER];").ok());
}

TEST_F(CompileC, SlowCompilersAreKilledWithTheirChildren) {
  const std::string pids = folder_ + "/pids";
  UseScript(
      "case \"$*\" in *--version*) echo fake 2.0; exit 0;; esac\n"
      "sleep 100 & echo $! $$ > " +
      pids + "; wait");
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = Compile("", 0.5);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_EQ(std::string(status.message()), "the C compiler \"" + folder_ + "/cc.sh\" took longer than 0.5 seconds");
  std::ifstream in(pids);
  int pid = 0, count = 0;
  while (in >> pid) {
    ++count;
    // A killed child of a killed shell is reaped by init; it may be a zombie for a moment.
    for (int i = 0; i < 200 && kill(pid, 0) == 0; ++i) {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string text((std::istreambuf_iterator<char>(stat)), {});
      if (text.find(") Z ") != std::string::npos) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_LT(i, 199) << "process " << pid << " lives on";
    }
  }
  EXPECT_EQ(count, 2);
}

TEST_F(CompileC, CompilersThatDieGiveTheirLastWords) {
  UseScript("case \"$*\" in *--version*) echo fake 3.0; exit 0;; esac\necho out of luck; kill -9 $$");
  const absl::Status status = Compile("");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(std::string(status.message()),
            "the C compiler \"" + folder_ + "/cc.sh\" refused the generated source:\nout of luck");
}

// Nothing is wrong with the source then.
TEST_F(CompileC, CompilersWithoutRoomAreUnavailable) {
  for (const std::string text :
       {"as: BFD: cannot write kernels.o: No space left on device",
        "cc: internal compiler error: File size limit exceeded signal terminated program as"}) {
    UseScript("case \"$*\" in *--version*) echo fake 4.0; exit 0;; esac\necho '" + text + "'; exit 1");
    const absl::Status status = Compile("");
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_EQ(std::string(status.message()), "the C compiler \"" + folder_ +
                                                 "/cc.sh\" had no room to write its output:\n" + text +
                                                 "\nset TMPDIR to a folder with space");
  }
}

TEST_F(CompileC, UnwritableFolderIsAnErrorThatNamesIt) {
  setenv("TMPDIR", "/no/such/folder", 1);
  const absl::Status status = Compile("");
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_EQ(std::string(status.message()),
            "cannot make a folder in /no/such/folder: No such file or directory; set TMPDIR to a folder that "
            "can be written to");
  setenv("TMPDIR", (folder_ + "/tmp").c_str(), 1);
}

}  // namespace
}  // namespace diapason
