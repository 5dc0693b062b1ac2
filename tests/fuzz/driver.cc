// Runs a fuzz target without libFuzzer: all seeds, then changed ones, the same ones for the same --seed.
//
//   fuzz_requests_driver [--runs N] [--seconds S] [--seed N] [--write-seeds DIR] [FILE|DIR]...
//
// Files whose name ends in .hex hold bytes as hexadecimal digits. An input that ends the process is left in
// "found-TARGET" in the working folder.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "tests/fuzz/fuzz.h"

namespace diapason {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kHangSeconds = 30;
constexpr size_t kMaxBytes = 1 << 16;

// What runs, for the handler of signals.
std::string g_input;
char g_found_path[256];

void OnSignal(int signal) {
  const int fd = open(g_found_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd >= 0 && write(fd, g_input.data(), g_input.size()) < 0) _exit(1);
  const char* text = signal == SIGALRM ? "it hangs: the input is in " : "it crashes: the input is in ";
  for (const char* part : {text, static_cast<const char*>(g_found_path), "\n"}) {
    if (write(2, part, std::strlen(part)) < 0) _exit(1);
  }
  _exit(1);
}

void Run(const std::string& input) {
  g_input = input;
  alarm(kHangSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(g_input.data()), g_input.size());
  alarm(0);
}

std::string ReadSeed(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (path.extension() != ".hex") return bytes;
  std::string digits, decoded;
  std::copy_if(bytes.begin(), bytes.end(), std::back_inserter(digits),
               [](unsigned char c) { return std::isxdigit(c); });
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    decoded += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return decoded;
}

// False, with a sentence on stderr, if there is nothing at the path: a corpus that moved would pass for ever.
bool AddSeeds(const fs::path& path, std::vector<std::string>& seeds) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  } else if (fs::is_regular_file(path)) {
    files.push_back(path);
  }
  if (files.empty())
    std::fprintf(stderr, "there are no seeds in %s: name a file, or a folder with files\n", path.c_str());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) seeds.push_back(ReadSeed(file));
  return !files.empty();
}

// Changes as libFuzzer makes them, without its knowledge of what they reach.
class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, uint64_t seed) : seeds_(seeds), random_(seed) {}

  std::string Next() {
    std::string bytes = seeds_[Below(seeds_.size())];
    for (size_t changes = 1 + Below(4); changes > 0; --changes) Change(bytes);
    if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
    return bytes;
  }

 private:
  size_t Below(size_t end) { return end == 0 ? 0 : random_() % end; }

  void Change(std::string& bytes) {
    const size_t at = Below(bytes.size() + 1);
    const size_t length = std::min(bytes.size() - at, Below(16) + 1);
    switch (Below(8)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
        break;
      case 2: bytes.erase(at, length); break;
      case 3: bytes.insert(at, std::string(Below(8) + 1, static_cast<char>(random_()))); break;
      case 4: bytes.insert(Below(bytes.size() + 1), bytes.substr(at, length)); break;
      case 5: ReplaceNumber(bytes, at); break;
      case 6: bytes.resize(at); break;
      case 7: {
        const std::string& other = seeds_[Below(seeds_.size())];
        bytes = bytes.substr(0, at) + other.substr(Below(other.size() + 1));
        break;
      }
    }
  }

  // Of the digits at or behind `at`.
  void ReplaceNumber(std::string& bytes, size_t at) {
    static constexpr const char* kNumbers[] = {"0",          "1",           "-1",         "2",
                                               "3",          "7",           "64",         "1024",
                                               "2147483647", "-2147483648", "4294967296", "9223372036854775807",
                                               "1e308",      "-0"};
    const size_t begin = bytes.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(bytes.find_first_not_of("0123456789", begin), bytes.size());
    bytes.replace(begin, end - begin, kNumbers[Below(std::size(kNumbers))]);
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
};

int WriteSeeds(const std::string& folder, const std::vector<std::string>& seeds) {
  fs::create_directories(folder);
  for (size_t i = 0; i < seeds.size(); ++i)
    std::ofstream(folder + "/seed-" + std::to_string(i), std::ios::binary) << seeds[i];
  std::printf("%zu seeds\n", seeds.size());
  return 0;
}

int Main(int argc, char** argv) {
  long runs = 0, seed = 1;
  double seconds = 1e9;
  std::string write_to;
  std::vector<std::string> seeds = FuzzSeeds();
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool has_value = arg.rfind("--", 0) == 0 && i + 1 < argc;
    if (has_value && arg == "--runs") {
      runs = std::atol(argv[++i]);
    } else if (has_value && arg == "--seconds") {
      seconds = std::atof(argv[++i]);
    } else if (has_value && arg == "--seed") {
      seed = std::atol(argv[++i]);
    } else if (has_value && arg == "--write-seeds") {
      write_to = argv[++i];
    } else if (!AddSeeds(arg, seeds)) {
      return 2;
    }
  }
  if (!write_to.empty()) return WriteSeeds(write_to, seeds);
  const std::string found = "found-" + fs::path(argv[0]).filename().string();
  std::snprintf(g_found_path, sizeof(g_found_path), "%s", found.c_str());
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGALRM}) ::signal(signal, OnSignal);
  for (const std::string& input : seeds) Run(input);
  Mutator mutator(seeds, static_cast<uint64_t>(seed));
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  long done = 0;
  while (done < runs && std::chrono::steady_clock::now() < until) {
    Run(mutator.Next());
    ++done;
  }
  std::printf("%zu seeds and %ld changed ones\n", seeds.size(), done);
  if (!seeds.empty() && (done > 0 || runs == 0)) return 0;
  std::fprintf(stderr, "nothing was tried: --seconds %g is not enough for one input\n", seconds);
  return 1;
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) { return diapason::Main(argc, argv); }
