// What other users of a host, what runs inside a sandbox, and what a killed worker leaves could do.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "absl/base/config.h"
#include "base/environment.h"
#include "tests/attacks/attack_fixture.h"
#include "worker/process/child_process.h"
#include "worker/process/host_memory.h"
#include "worker/process/sandbox.h"
#include "worker/process/scratch.h"

namespace diapason {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<pid_t> Family(pid_t root) {
  std::vector<pid_t> family = Descendants(root);
  family.push_back(root);
  return family;
}

std::string Proc(pid_t pid, const std::string& name) { return "/proc/" + std::to_string(pid) + "/" + name; }

// Dead is also who waits to be buried by the first process of the system.
bool Lives(pid_t pid) {
  const std::string stat = ReadText(Proc(pid, "stat"));
  const size_t name_ends = stat.rfind(')');
  return name_ends != std::string::npos && stat[name_ends + 2] != 'Z' && stat[name_ends + 2] != 'X';
}

// "socket:[123]", "/path", ...
std::vector<std::string> OpenOf(pid_t pid) {
  std::vector<std::string> open;
  std::error_code gone;
  for (auto it = std::filesystem::directory_iterator(Proc(pid, "fd"), gone);
       it != std::filesystem::directory_iterator(); it.increment(gone)) {
    std::error_code closed;
    open.push_back(std::filesystem::read_symlink(it->path(), closed).string());
  }
  return open;
}

std::set<std::string> SocketsOf(pid_t root) {
  std::set<std::string> inodes;
  for (pid_t pid : Family(root))
    for (const std::string& file : OpenOf(pid))
      if (file.rfind("socket:[", 0) == 0) inodes.insert(file.substr(8, file.size() - 9));
  return inodes;
}

// Sockets of the process and of all that it started to which others could connect: "tcp 0100007F:1234", "unix /path".
std::set<std::string> Listening(pid_t root) {
  const std::set<std::string> inodes = SocketsOf(root);
  std::set<std::string> found;
  auto look = [&](const std::string& file, size_t inode, const auto& listens) {
    std::istringstream lines(ReadText(Proc(root, "net/" + file)));
    std::string line;
    std::getline(lines, line);  // the heading
    while (std::getline(lines, line)) {
      std::istringstream text(line);
      std::vector<std::string> words;
      for (std::string word; text >> word;) words.push_back(word);
      if (words.size() > inode && inodes.contains(words[inode]) && listens(words))
        found.insert(file + " " + (file == "unix" ? words.back() : words[1]));
    }
  };
  for (const char* tcp : {"tcp", "tcp6"}) look(tcp, 9, [](const auto& words) { return words[3] == "0A"; });
  look("unix", 6, [](const auto& words) { return words[3] == "00010000"; });
  return found;
}

std::vector<std::string> Gemm(const std::string& command, std::vector<std::string> more) {
  std::vector<std::string> args = {
      command, "gemm", "--m", "32", "--n", "48", "--k", "64", "--target", "cpu -num-cores=1", "--min-repeat-ms", "1"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

class HostAttack : public AttackTest {
 protected:
  // The environment variable has this value until the test ends.
  void Set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }
  // An executable file.
  std::string Script(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << "#!/bin/sh\n" << text;
    chmod(Path(name).c_str(), 0700);
    return Path(name);
  }
  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
    AttackTest::TearDown();
  }

 private:
  std::vector<std::string> set_;
};

// Whoever may connect to a tracker without tokens has programs measured there, and answers for its worker. Done before:
// programs run as root, 3,160 records forged.
TEST_F(HostAttack, TuneHasNothingThatAnotherUserCouldConnectTo) {
  Process tune(Gemm("tune", {"--history", Path("h.db"), "--trials", "4"}), Path("tune"));
  std::set<std::string> listening;
  size_t sockets = 0;
  ASSERT_TRUE(WaitFor([&] {
    listening.merge(Listening(tune.pid()));
    sockets = std::max(sockets, SocketsOf(tune.pid()).size());
    return tune.Poll().has_value();
  }));
  EXPECT_EQ(tune.Wait(), 0) << tune.err();
  EXPECT_GE(sockets, 4u);  // two ends each of a builder and a runner, at least: it was looked at while it measured
  EXPECT_THAT(listening, IsEmpty());
  ExpectEachOnce(4);
}

// What any user of the host can try with the processes of a tuner and what they keep on disk, again and again until the
// tuner ends; says in the end what worked, and what was there to be tried.
constexpr char kOtherUser[] = R"(
import ctypes, glob, os, socket, stat, sys, time
root, folder = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
worked, tried = set(), {'processes': set(), 'files': set()}

def family():
    parents = {}
    for name in os.listdir('/proc'):
        try:
            text = open('/proc/' + name + '/stat').read() if name.isdigit() else ''
        except OSError:
            continue
        if text:
            parents[int(name)] = int(text[text.rindex(')') + 2:].split()[1])
    found = [root] if root in parents else []
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found

def attempt(what, act):
    try:
        act()
        worked.add(what)
    except OSError:
        pass

def steal(pid, fd):  # pidfd_open, pidfd_getfd
    handle = libc.syscall(434, pid, 0)
    if handle < 0:
        raise OSError()
    got = libc.syscall(438, handle, fd, 0)
    os.close(handle)
    if got < 0:
        raise OSError()
    is_socket = stat.S_ISSOCK(os.fstat(got).st_mode)
    os.close(got)
    if not is_socket:
        raise OSError()

def connect(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)

while True:
    pids = family()
    if not pids:
        break
    for pid in pids:
        tried['processes'].add(pid)
        attempt('environment', lambda: open('/proc/%d/environ' % pid).read())
        attempt('memory', lambda: open('/proc/%d/mem' % pid, 'r+b').close())
        attempt('open files', lambda: os.listdir('/proc/%d/fd' % pid))
        attempt('signal', lambda: os.kill(pid, 0))
        for fd in range(20):
            attempt('socket', lambda: steal(pid, fd))
    # Folders of scratch files, and the rounds beside the history; the history and its model have the mode of the umask.
    for path in glob.glob(folder + '/scratch/*') + glob.glob(folder + '/h.db.rounds*'):
        tried['files'].add(path)
        if os.path.isdir(path):
            attempt('folder', lambda: os.listdir(path))
            for below in ('/builder-0', '/runner-0', '/lock', '/socket'):
                attempt('in folder', lambda: open(path + below).read())
                attempt('connect', lambda: connect(path + below))
            attempt('write', lambda: open(path + '/planted', 'w').close())
        else:
            attempt('file', lambda: open(path, 'rb').read())
            attempt('write', lambda: open(path, 'r+b').close())
    time.sleep(0.02)
print('worked:', ' '.join(sorted(worked)))
print('tried:', len(tried['processes']), len(tried['files']))
)";

// What the programs say that was tried by user and group `id`.
struct OtherUser {
  OtherUser(int id, pid_t tune, const std::string& folder) {
    const std::string user = std::to_string(id), command = "PATH=/usr/bin:/bin exec setpriv --reuid=" + user +
                                                           " --regid=" + user +
                                                           " --clear-groups python3 -c \"$1\" \"$2\" \"$3\"";
    ChildOptions options;
    options.program = "/bin/sh";
    options.args = {"sh", "-c", command, "sh", kOtherUser, std::to_string(tune), folder};
    options.scratch = folder + "/attacker" + user;
    std::filesystem::create_directory(options.scratch);
    auto spawned = ChildProcess::Spawn(options);
    EXPECT_TRUE(spawned.ok()) << spawned.status();
    if (spawned.ok()) child = *std::move(spawned);
  }
  std::string Report() const {
    if (child == nullptr) return "";
    EXPECT_TRUE(WaitFor([&] { return child->Reap().has_value(); }, 20));
    return child->OutputTail();
  }
  std::unique_ptr<ChildProcess> child;
};

// The same attack made as the tuner's own user shows that it works where nothing is in its way.
TEST_F(HostAttack, AnotherUserReachesNothingOfTune) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user, who attacks";
  for (const char* program : {"/usr/bin/python3", "/usr/bin/setpriv"})  // others' may not be for every user
    if (access(program, X_OK) != 0) GTEST_SKIP() << "there is no " << program << " to attack with";
  std::filesystem::create_directory(Path("scratch"));
  std::filesystem::permissions(Path("scratch"), std::filesystem::perms::all);
  std::filesystem::permissions(Path(""), std::filesystem::perms(0755));
  Set("TMPDIR", Path("scratch"));
  // A history in use, with files beside it from the start.
  Process tune(Gemm("tune", {"--history", Path("h.db"), "--trials", "24"}), Path("tune"));
  ASSERT_TRUE(WaitFor([&] { return !Descendants(tune.pid()).empty() || tune.Poll().has_value(); }));
  constexpr int kNobody = 65534;
  const OtherUser other(kNobody, tune.pid(), Path("")), same(0, tune.pid(), Path(""));
  EXPECT_EQ(tune.Wait(), 0) << tune.err();
  const std::string others = other.Report(), own = same.Report();
  EXPECT_THAT(others, StartsWith("worked: \ntried: "));
  EXPECT_THAT(own, HasSubstr("environment"));
  EXPECT_THAT(own, HasSubstr("file"));
  EXPECT_THAT(own, HasSubstr("folder"));
  int processes = 0, files = 0;
  ASSERT_EQ(sscanf(others.c_str(), "worked: \ntried: %d %d", &processes, &files), 2) << others;
  EXPECT_GE(processes, 3) << others;  // the tuner, a builder and a runner
  EXPECT_GE(files, 2) << others;      // its rounds and a scratch folder
  ExpectEachOnce(24);
}

// Done before: the service's own tuners had a Unix socket without a token, in a folder that its user's processes could
// enter.
TEST_F(HostAttack, AServiceWithTokensHasItsPortAndNoOtherWayIn) {
  const auto service = Serve({"--tokens", Tokens()});
  const std::string address = service->Address();
  for (const char* role : {"submitter", "worker"}) {
    std::ofstream(Path(role)) << Token(role) << "\n";
    chmod(Path(role).c_str(), 0600);
  }
  const auto worker = Worker(address, "w", {"--token-file", Path("worker")});
  const CliResult job =
      Cli(Gemm("submit", {"--trials", "2", "--service", address, "--token-file", Path("submitter"), "--wait"}));
  EXPECT_EQ(job.code, 0) << job.err << service->err();
  const std::set<std::string> listening = Listening(service->pid());
  ASSERT_EQ(listening.size(), 1u);
  EXPECT_THAT(*listening.begin(), StartsWith("tcp"));
  ExpectError(Cli({"fleet", "status", "--tracker", address}),
              "no token came with the call: give one with --token-file");
}

// Files that hold what was submitted, who may ask, and what is under way.
TEST_F(HostAttack, OtherUsersReadNoStateOfTheServiceOrTheTracker) {
  umask(0);
  {
    const auto service = Serve();
    const auto worker = Worker(service->Address(), "w");
    EXPECT_EQ(Cli(Gemm("submit", {"--trials", "4", "--service", service->Address(), "--wait"})).code, 0)
        << service->err();
    const auto tracker = Tracker();
    EXPECT_NE(tracker->Address(), "");
  }
  umask(022);
  int looked_at = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(Path(""))) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("h.db.", 0) != 0 && name.rfind("state.db", 0) != 0 && name.rfind("job-", 0) != 0) continue;
    struct stat info {};
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0) << entry.path();
    EXPECT_EQ(info.st_mode & 077, 0u) << entry.path();
    ++looked_at;
  }
  EXPECT_GE(looked_at, 5);  // jobs, rounds, tracker, models, state
}

TEST_F(HostAttack, ProcessesOfAWorkerGetNoSecretAndNoFileOfIts) {
  Set("GITHUB_TOKEN", "secret-of-the-environment");
  Set("LD_PRELOAD", "");
  Set("WANTED", "wanted");
  const auto tracker = Tracker();
  const auto worker = Worker(tracker->Address(), "w", {"--sandbox", "off", "--keep-env", "WANTED"});
  ASSERT_TRUE(worker->Says("worker measures on"));
  std::vector<pid_t> processes;
  ASSERT_TRUE(WaitFor([&] {
    processes = Descendants(worker->pid());
    std::erase_if(processes,
                  [](pid_t pid) { return ReadText(Proc(pid, "cmdline")).find("internal-") == std::string::npos; });
    // a builder and a runner; a compiler that is being started looks like its builder for a moment
    return processes.size() == 2;
  })) << processes.size();
  for (pid_t pid : processes) {
    const std::string environment = ReadText(Proc(pid, "environ"));
    EXPECT_THAT(environment, HasSubstr(std::string("PATH=")));
    EXPECT_THAT(environment, HasSubstr("WANTED=wanted"));
    EXPECT_THAT(environment, Not(HasSubstr("secret-of-the-environment")));
    EXPECT_THAT(environment, Not(HasSubstr("LD_PRELOAD")));
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && \
    !defined(ABSL_HAVE_THREAD_SANITIZER)  // which reserve terabytes of addresses
    // Half of the host's memory, a limit that a process puts on itself when it begins.
    std::string limits;
    EXPECT_TRUE(WaitFor([&] {
      limits = ReadText(Proc(pid, "limits"));
      const std::string space = "Max address space";
      return std::atoll(limits.c_str() + limits.find(space) + space.size()) ==
             std::max(int64_t{4} << 30, HostMemoryBytes() / 2);
    })) << limits;
#endif
    // Its input, its output twice, and the socket to the worker: no connection to the tracker, no lock.
    std::vector<std::string> open = OpenOf(pid);
    EXPECT_EQ(std::count_if(open.begin(), open.end(), [](const auto& f) { return f.rfind("socket:", 0) == 0; }), 1);
    EXPECT_THAT(open, Not(Contains(::testing::EndsWith("/lock"))));
  }
}

// A compiler that takes long, and starts processes of its own as gcc does.
TEST_F(HostAttack, NothingOutlivesAWorkerThatIsKilled) {
  Set("CC", Script("slow-cc",
                   "case \"$*\" in *--version*) echo slow; exit;; esac\nsh -c 'sleep 1000; :' &\nsleep 1000; :\n"));
  const auto tracker = Tracker();
  const auto worker = Worker(tracker->Address(), "w", {"--sandbox", "off"});
  Process tune(Tune(tracker->Address(), "4"), Path("tune"));
  auto compiles = [&](const std::vector<pid_t>& family) {
    return std::count_if(family.begin(), family.end(),
                         [](pid_t pid) { return ReadText(Proc(pid, "comm")) == "sleep\n"; }) == 2;
  };
  ASSERT_TRUE(WaitFor([&] { return compiles(Descendants(worker->pid())); })) << worker->err() << tune.err();
  const std::vector<pid_t> family = Descendants(worker->pid());
  EXPECT_GE(family.size(), 6u);  // builder, runner, compiler and what it started
  worker->Kill();
  WaitFor([&] { return std::none_of(family.begin(), family.end(), Lives); }, 2);
  for (pid_t pid : family) EXPECT_FALSE(Lives(pid)) << ReadText(Proc(pid, "cmdline"));
}

// A Unix socket that takes connections from everybody.
class OpenSocket {
 public:
  explicit OpenSocket(const std::string& path) : path_(path), fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    EXPECT_LT(path.size(), sizeof at.sun_path);
    path.copy(at.sun_path, sizeof at.sun_path - 1);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0) << path;
    EXPECT_EQ(listen(fd_, 8), 0);
    chmod(path.c_str(), 0777);
  }
  ~OpenSocket() {
    close(fd_);
    unlink(path_.c_str());
  }

 private:
  const std::string path_;
  const int fd_;
};

// Connects to each socket, reads each file and writes "mine" to its scratch folder; says what it could do.
constexpr char kAttacker[] = R"(
import os, socket, sys
for path in sys.argv[1:]:
    try:
        if path.endswith('.socket'):
            socket.socket(socket.AF_UNIX).connect(path)
        else:
            open(path).read()
        print('reached', path)
    except OSError:
        pass
open(os.environ['TMPDIR'] + '/mine', 'w').write('mine')
print('done')
)";

std::string RunAttacker(const Sandbox& sandbox, const std::string& folder, const std::vector<std::string>& paths) {
  ChildOptions options;
  options.program = "/bin/sh";
  options.args = {"sh", "-c", "exec python3 \"$@\"", "sh", "-c", kAttacker};
  options.args.insert(options.args.end(), paths.begin(), paths.end());
  options.scratch = folder;
  sandbox.Wrap(/*devices=*/false, options);
  auto child = ChildProcess::Spawn(options);
  if (!child.ok()) return std::string(child.status().message());
  EXPECT_TRUE(WaitFor([&] { return (*child)->Reap().has_value(); }));
  return (*child)->OutputTail();
}

// Done before: the service's socket in the temporary folder was open to what runs inside, with full access.
TEST_F(HostAttack, InsideTheSandboxThereAreNoSocketsNorFilesOfOthers) {
  if (FindOnPath("python3").empty()) GTEST_SKIP() << "there is no python3 to attack with";
  const auto scratch = ScratchFolder::Create();
  ASSERT_TRUE(scratch.ok()) << scratch.status();
  const auto sandbox = Sandbox::Find(SandboxMode::kAuto, **scratch);
  ASSERT_TRUE(sandbox.ok()) << sandbox.status();
  if (!sandbox->in_force()) GTEST_SKIP() << sandbox->why_not();
  const std::string mine = (*scratch)->Fresh("mine").value(), other = (*scratch)->Fresh("other").value();
  std::string shared = "/tmp/diapason-attack-XXXXXX";
  ASSERT_NE(mkdtemp(shared.data()), nullptr);
  {
    const OpenSocket in_tmp(shared + "/a.socket"), in_scratch((*scratch)->path() + "/b.socket"),
        of_another(other + "/c.socket");
    std::ofstream(other + "/text") << "of another candidate";
    std::ofstream(shared + "/text") << "of another user";
    const std::vector<std::string> goals = {shared + "/a.socket", (*scratch)->path() + "/b.socket",
                                            other + "/c.socket",  other + "/text",
                                            shared + "/text",     (*scratch)->path() + "/lock"};
    std::string all;
    for (const std::string& goal : goals) all += "reached " + goal + "\n";
    EXPECT_EQ(RunAttacker(Sandbox::None(), other, goals),
              all + "done");  // the attack works where nothing is in its way
    EXPECT_EQ(RunAttacker(*sandbox, mine, goals), "done");
    EXPECT_EQ(ReadText(mine + "/mine"), "mine");
  }
  std::filesystem::remove_all(shared);
}

}  // namespace
}  // namespace diapason
