// The program as a process of its own: started, read, signalled and killed.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/paths.h"

namespace diapason {

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Waits until `done` is true; false when that takes longer than `seconds`.
template <typename Done>
bool WaitFor(const Done& done, double seconds = 60) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// All processes below `root`, nearest first.
inline std::vector<pid_t> Descendants(pid_t root) {
  std::map<pid_t, std::vector<pid_t>> children;
  DIR* proc = opendir("/proc");
  for (dirent* entry = readdir(proc); entry != nullptr; entry = readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
    const size_t name_ends = stat.rfind(')');
    char state = 0;
    pid_t parent = 0;
    if (name_ends == std::string::npos || sscanf(stat.c_str() + name_ends + 1, " %c %d", &state, &parent) != 2)
      continue;
    children[parent].push_back(pid);
  }
  closedir(proc);
  std::vector<pid_t> all;
  std::vector<pid_t> next = {root};
  for (size_t i = 0; i < next.size(); ++i) {
    for (pid_t child : children[next[i]]) {
      all.push_back(child);
      next.push_back(child);
    }
  }
  return all;
}

// Where to listen, at a port of the system's choice, on an address of this process alone: what starts again where it
// listened before finds its port free, though other tests took any that were free on 127.0.0.1 meanwhile.
inline std::string OwnLoopback() {
  const pid_t pid = getpid();
  std::ostringstream address;
  address << "127." << 1 + (pid >> 16) << "." << (pid >> 8 & 255) << "." << (pid & 255) << ":0";
  return address.str();
}

// `diapason ARGS`, its output in the files LOG.out and LOG.err. Killed at the end at the latest.
class Process {
 public:
  // Called in the new process before the program starts, for limits; must only call what is safe after fork.
  using InChild = std::function<void()>;

  Process(const std::vector<std::string>& args, std::string log, const InChild& in_child = nullptr)
      : log_(std::move(log)) {
    std::vector<std::string> all = {"diapason"};
    all.insert(all.end(), args.begin(), args.end());
    std::vector<char*> pointers;
    for (std::string& arg : all) pointers.push_back(arg.data());
    pointers.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // of the thread that started it: the test's
    if (getppid() != parent) _exit(1);
    dup2(open((log_ + ".out").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
    dup2(open((log_ + ".err").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    if (in_child != nullptr) in_child();
    execv(TEST_PATH(DIAPASON_PROGRAM).c_str(), pointers.data());
    _exit(127);
  }
  ~Process() { Kill(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  std::string out() const { return ReadText(log_ + ".out"); }
  std::string err() const { return ReadText(log_ + ".err"); }
  void Signal(int signal) const {
    if (!status_.has_value()) kill(pid_, signal);
  }
  // The exit status once it has ended, 128 + the signal that ended it; nothing while it runs.
  std::optional<int> Poll() {
    int status = 0;
    if (!status_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return status_;
  }
  // Its exit status; -1 when it does not end in time.
  int Wait(double seconds = 60) {
    return WaitFor([&] { return Poll().has_value(); }, seconds) ? *status_ : -1;
  }
  void Kill() {
    Signal(SIGKILL);
    Signal(SIGCONT);
    Wait();
  }
  // Waits until the text is in its output.
  bool Says(const std::string& text, double seconds = 60) const {
    return WaitFor([&] { return out().find(text) != std::string::npos; }, seconds);
  }
  // What stands behind "listens on " in its output: where it can be reached.
  std::string Address() const {
    const std::string before = "listens on ";
    if (!WaitFor([&] { return out().find('\n') != std::string::npos; })) return "";
    const std::string text = out();
    const size_t at = text.find(before);
    return at == std::string::npos ? "" : text.substr(at + before.size(), text.find('\n', at) - at - before.size());
  }

 private:
  const std::string log_;
  pid_t pid_ = 0;
  std::optional<int> status_;
};

}  // namespace diapason
