#include "compiler/tensor/device_facts.h"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/processor.h"
#include "compiler/tensor/target.h"

namespace diapason {
namespace {

// ---- CPU ------------------------------------------------------------------------------------------------------------

// What /proc/cpuinfo says of the first processor.
struct CpuInfo {
  std::string model = "unknown CPU";
  std::string vendor;
  int family = 0;
  double mhz = 0;
  std::set<std::string> flags;
};

CpuInfo ReadCpuInfo() {
  CpuInfo info;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::string value = line.substr(colon + 2);
    if (key == "model name") info.model = value.substr(0, value.find_last_not_of(' ') + 1);
    if (key == "vendor_id") info.vendor = value;
    if (key == "cpu family") info.family = std::atoi(value.c_str());
    if (key == "cpu MHz") info.mhz = std::atof(value.c_str());
    if (key == "flags") {
      std::istringstream words(value);
      for (std::string flag; words >> flag;) info.flags.insert(flag);
    }
  }
  return info;
}

int CoresOfThisProcess() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

// "32K", "1024K", "16M"; 0 if the file is missing.
int64_t ReadBytes(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  char unit = 0;
  if (!(file >> number)) return 0;
  file >> unit;
  return unit == 'K' ? number << 10 : unit == 'M' ? number << 20 : number;
}

void ReadCaches(DeviceFacts& facts) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::ifstream level_file(folder + "level"), type_file(folder + "type");
    int level = 0;
    std::string type;
    if (!(level_file >> level) || !(type_file >> type) || type == "Instruction") continue;
    const int64_t bytes = ReadBytes(folder + "size");
    if (bytes <= 0) continue;
    if (level == 1) facts.l1_bytes = bytes;
    if (level == 2) facts.l2_bytes = bytes;
    if (level == 3) facts.l3_bytes = bytes;
  }
}

double ClockOf(const CpuInfo& info) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");  // kHz
  double khz = 0;
  if (file >> khz && khz > 0) return khz * 1e3;
  return info.mhz > 0 ? info.mhz * 1e6 : 2e9;
}

bool OneOf(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* known) { return word == known; });
}

// Bytes of the widest vectors: of this machine for "native", else of the named processor.
int VectorBytesOf(const std::string& mcpu, const CpuInfo& info) {
  if (OneOf(mcpu, {"x86-64-v4", "skylake-avx512", "cannonlake", "cascadelake", "cooperlake", "icelake-client",
                   "icelake-server", "rocketlake", "tigerlake", "sapphirerapids", "emeraldrapids", "graniterapids",
                   "znver4", "znver5"}))
    return 64;
  if (OneOf(mcpu,
            {"x86-64-v3", "haswell", "core-avx2", "broadwell", "skylake", "alderlake", "znver1", "znver2", "znver3"}))
    return 32;
  if (mcpu != "native") return 16;
  if (info.flags.count("avx512f") > 0) return 64;
  return info.flags.count("avx2") > 0 ? 32 : 16;
}

// fp32 operations a core can start a cycle: two fused multiply-adds of the widest vectors, save that AMD before Zen 5
// (family 26) passes a 512-bit vector through its 256-bit units in two steps.
double FlopsPerCycle(const DeviceFacts& facts, const CpuInfo& info) {
  const bool half_width = info.vendor == "AuthenticAMD" && info.family < 26;
  const int unit_bytes = half_width ? std::min(facts.vector_bytes, 32) : facts.vector_bytes;
  const bool arm = ArchOfTriple(HostTriple()) == "aarch64";
  const double fma = arm || facts.vector_bytes >= 32 ? 2 : 1;
  return 2 * fma * unit_bytes / 4;
}

// Of processors of another architecture nothing can be asked: a server of today, by its data sheet.
constexpr int kForeignCores = 4;

DeviceFacts ForeignFacts(const Target& target) {
  const bool arm = ArchOfTriple(target.triple) == "aarch64";
  DeviceFacts facts;
  facts.model = target.mcpu + " (" + target.triple + ")";
  facts.arch = ArchOfTriple(target.triple);
  facts.num_cores = target.num_cores > 0 ? target.num_cores : kForeignCores;
  // NEON has 32 registers of 16 bytes. Code for longer SVE vectors is not generated.
  facts.vector_bytes = arm ? 16 : VectorBytesOf(target.mcpu, CpuInfo());
  facts.num_vector_registers = arm || facts.vector_bytes == 64 ? 32 : 16;
  facts.l1_bytes = arm ? 64 << 10 : 32 << 10;
  facts.l2_bytes = 1 << 20;
  facts.l3_bytes = 32 << 20;
  facts.clock_hz = 2.6e9;
  const double per_cycle = 2 * 2 * (facts.vector_bytes / 4.0);  // two fused multiply-adds
  facts.flops = facts.num_cores * facts.clock_hz * per_cycle;
  facts.bandwidth = BandwidthOfCores(facts.num_cores);
  facts.l2_bandwidth = facts.num_cores * facts.clock_hz * 32;
  facts.launch_seconds = 2e-6;
  return facts;
}

DeviceFacts CpuFacts(const Target& target) {
  if (target.is_foreign()) return ForeignFacts(target);
  const CpuInfo info = ReadCpuInfo();
  DeviceFacts facts;
  facts.model = info.model;
  facts.num_cores = target.num_cores > 0 ? target.num_cores : CoresOfThisProcess();
  facts.vector_bytes = VectorBytesOf(target.mcpu, info);
  facts.num_vector_registers = facts.vector_bytes == 64 || ArchOfTriple(HostTriple()) == "aarch64" ? 32 : 16;
  ReadCaches(facts);
  facts.clock_hz = ClockOf(info);
  facts.flops = facts.num_cores * facts.clock_hz * FlopsPerCycle(facts, info);
  facts.bandwidth = BandwidthOfCores(facts.num_cores);
  facts.l2_bandwidth = facts.num_cores * facts.clock_hz * 32;
  facts.launch_seconds = 2e-6;
  utsname machine;
  if (uname(&machine) == 0) facts.arch = machine.machine;
  if (facts.arch == "x86_64") facts.arch = "x86-64";
  return facts;
}

// ---- GPU ------------------------------------------------------------------------------------------------------------

struct CudaArch {
  int arch;
  const char* model;
  int multiprocessors;
  int shared_per_block_kib, shared_per_core_kib;
  int threads_per_core;
  int l1_kib;
  int l2_mib;
  double clock_ghz, tflops, bandwidth_gb, l2_bandwidth_gb;  // 1e9, 1e12, 1e9, 1e9
};

// The data sheets of a typical card of each architecture; L2 rates are what micro-benchmarks reach.
constexpr CudaArch kCudaArchs[] = {
    {70, "Tesla V100-SXM2-16GB", 80, 96, 96, 2048, 128, 6, 1.53, 15.7, 900, 2200},
    {75, "Tesla T4", 40, 64, 64, 1024, 96, 4, 1.59, 8.1, 320, 1200},
    {80, "NVIDIA A100-SXM4-80GB", 108, 163, 164, 2048, 192, 40, 1.41, 19.5, 2039, 4500},
    {86, "NVIDIA GeForce RTX 3090", 82, 99, 100, 1536, 128, 6, 1.70, 35.6, 936, 2000},
    {87, "Orin", 16, 163, 164, 1536, 192, 4, 1.30, 5.3, 205, 700},
    {89, "NVIDIA GeForce RTX 4090", 128, 99, 100, 1536, 128, 72, 2.52, 82.6, 1008, 5000},
    {90, "NVIDIA H200", 132, 227, 228, 2048, 256, 50, 1.98, 67, 4800, 6000},
    {100, "NVIDIA B200", 148, 227, 228, 2048, 256, 126, 1.97, 75, 8000, 10000},
    {120, "NVIDIA GeForce RTX 5090", 170, 99, 100, 1536, 128, 96, 2.41, 105, 1792, 7000},
};
constexpr int kDefaultCudaArch = 90;

// The newest known architecture that is not newer than the target's.
const CudaArch& ArchOf(const Target& target) {
  const int number = target.arch.empty() ? kDefaultCudaArch : std::atoi(target.arch.c_str() + 3);
  const CudaArch* best = &kCudaArchs[0];
  for (const CudaArch& arch : kCudaArchs)
    if (arch.arch <= number) best = &arch;
  return *best;
}

DeviceFacts CudaFacts(const Target& target) {
  const CudaArch& arch = ArchOf(target);
  DeviceFacts facts;
  facts.model = arch.model;
  facts.num_cores = arch.multiprocessors;
  facts.max_threads_per_block = 1024;
  facts.max_shared_bytes = int64_t{arch.shared_per_block_kib} << 10;
  facts.shared_bytes_per_core = int64_t{arch.shared_per_core_kib} << 10;
  facts.max_threads_per_core = arch.threads_per_core;
  facts.warp_size = 32;
  // 8 everywhere; 16 where functions can be allowed more (the data-centre parts).
  facts.max_cluster = arch.arch < 90 ? 1 : arch.arch < 120 ? 16 : 8;
  facts.l1_bytes = int64_t{arch.l1_kib} << 10;
  facts.l2_bytes = int64_t{arch.l2_mib} << 20;
  facts.clock_hz = arch.clock_ghz * 1e9;
  facts.flops = arch.tflops * 1e12;
  facts.bandwidth = arch.bandwidth_gb * 1e9;
  facts.l2_bandwidth = arch.l2_bandwidth_gb * 1e9;
  facts.launch_seconds = 1.5e-6;  // of a kernel in a graph
  facts.arch = target.arch.empty() ? "sm_" + std::to_string(arch.arch) : target.arch;
  return facts;
}

DeviceFacts OpenClFacts() {
  DeviceFacts facts;
  facts.model = "OpenCL device";
  facts.num_cores = 16;
  facts.max_threads_per_block = 1024;
  facts.max_shared_bytes = facts.shared_bytes_per_core = 48 << 10;
  facts.warp_size = 32;
  facts.max_cluster = 16;  // printed as two kernels
  facts.l2_bytes = 4 << 20;
  facts.clock_hz = 1.5e9;
  facts.flops = 6e12;
  facts.bandwidth = 3e11;
  facts.l2_bandwidth = 1e12;
  facts.launch_seconds = 1e-5;
  facts.arch = "opencl";
  return facts;
}

// ---- checks ---------------------------------------------------------------------------------------------------------

constexpr size_t kMaxFactText = 256;
constexpr double kMaxBytes = 1e15;

struct FactBounds {
  const char* name;
  double value, least, most;
  bool power_of_two = false;
};

std::vector<FactBounds> BoundsOf(const DeviceFacts& f, TargetKind kind) {
  const bool gpu = kind != TargetKind::kCpu;
  return {{"num_cores", double(f.num_cores), 1, gpu ? 65536.0 : 4096.0},
          // The narrowest block that sketches have on a GPU is 32 threads.
          {"max_threads_per_block", double(f.max_threads_per_block), gpu ? 32.0 : 1.0, 65536},
          {"max_shared_bytes", double(f.max_shared_bytes), 0, 1 << 30},
          {"shared_bytes_per_core", double(f.shared_bytes_per_core), 0, 1 << 30},
          {"registers_per_core", double(f.registers_per_core), 1, 1 << 24},
          {"max_registers_per_thread", double(f.max_registers_per_thread), 1, 65536},
          {"max_threads_per_core", double(f.max_threads_per_core), 1, 1 << 20},
          {"warp_size", double(f.warp_size), 1, 1024, true},
          {"max_cluster", double(f.max_cluster), 1, 1024},
          {"vector_bytes", double(f.vector_bytes), 4, 1024, true},
          {"num_vector_registers", double(f.num_vector_registers), 1, 4096},
          {"l1_bytes", double(f.l1_bytes), 0, kMaxBytes},
          {"l2_bytes", double(f.l2_bytes), 0, kMaxBytes},
          {"l3_bytes", double(f.l3_bytes), 0, kMaxBytes},
          {"clock_hz", f.clock_hz, 1e3, 1e12},
          {"flops", f.flops, 1e3, 1e21},
          {"bandwidth", f.bandwidth, 1e3, 1e18},
          {"l2_bandwidth", f.l2_bandwidth, 1e3, 1e18},
          {"launch_seconds", f.launch_seconds, 0, 10}};
}

bool IsPowerOfTwo(double value) {
  const auto whole = static_cast<int64_t>(value);
  return (whole & (whole - 1)) == 0;
}

absl::Status CheckText(const char* name, const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
  if (text.size() <= kMaxFactText && plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be a text of at most ", kMaxFactText, " characters without control characters"));
}

// "sm_90", "x86-64"; on CUDA it becomes a part of the target.
absl::Status CheckArch(const std::string& arch, TargetKind kind) {
  const bool word = std::all_of(arch.begin(), arch.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  });
  const bool known = kind != TargetKind::kCuda || arch.empty() || Target::Parse("cuda -arch=" + arch).ok();
  if (word && known) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("arch is '", absl::CHexEscape(arch.substr(0, kMaxFactText)),
                                                 "', which is no architecture of this kind of device"));
}

}  // namespace

double BandwidthOfCores(int cores) { return std::min(2e10 + 5e9 * cores, 2e11); }

absl::Status CheckFacts(const DeviceFacts& facts, TargetKind kind) {
  for (const FactBounds& b : BoundsOf(facts, kind)) {
    // False for NaN.
    if (b.value >= b.least && b.value <= b.most && (!b.power_of_two || IsPowerOfTwo(b.value))) continue;
    char text[200];
    std::snprintf(text, sizeof text, "%s is %.10g and must be %s %.10g to %.10g", b.name, b.value,
                  b.power_of_two ? "a power of two from" : "from", b.least, b.most);
    return absl::InvalidArgumentError(text);
  }
  for (const auto& [name, text] : {std::pair{"model", &facts.model}, std::pair{"uuid", &facts.uuid},
                                   std::pair{"arch", &facts.arch}, std::pair{"driver", &facts.driver}})
    RETURN_IF_ERROR(CheckText(name, *text));
  return CheckArch(facts.arch, kind);
}

DeviceFacts DefaultFacts(const Target& target) {
  switch (target.kind) {
    case TargetKind::kCuda: return CudaFacts(target);
    case TargetKind::kOpenCl: return OpenClFacts();
    case TargetKind::kCpu: break;
  }
  return CpuFacts(target);
}

}  // namespace diapason
