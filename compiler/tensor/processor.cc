#include "compiler/tensor/processor.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace diapason {
namespace {

constexpr char kX86[] = "x86_64-linux-gnu", kArm[] = "aarch64-linux-gnu";

struct Feature {
  const char* macro;  // what the compiler defines
  const char* name;   // what Linux calls it
};

// What compilers use in arithmetic on numbers and vectors.
constexpr Feature kFeatures[] = {
    {"__SSE4_1__", "sse4_1"},
    {"__SSE4_2__", "sse4_2"},
    {"__AVX__", "avx"},
    {"__AVX2__", "avx2"},
    {"__FMA__", "fma"},
    {"__F16C__", "f16c"},
    {"__BMI__", "bmi1"},
    {"__BMI2__", "bmi2"},
    {"__LZCNT__", "abm"},
    {"__MOVBE__", "movbe"},
    {"__FMA4__", "fma4"},
    {"__AVX512F__", "avx512f"},
    {"__AVX512BW__", "avx512bw"},
    {"__AVX512CD__", "avx512cd"},
    {"__AVX512DQ__", "avx512dq"},
    {"__AVX512VL__", "avx512vl"},
    {"__AVX512IFMA__", "avx512ifma"},
    {"__AVX512VBMI__", "avx512vbmi"},
    {"__AVX512VBMI2__", "avx512_vbmi2"},
    {"__AVX512VNNI__", "avx512_vnni"},
    {"__AVX512BF16__", "avx512_bf16"},
    {"__AVX512FP16__", "avx512_fp16"},
    {"__AVXVNNI__", "avx_vnni"},
    {"__ARM_FEATURE_ATOMICS", "atomics"},
    {"__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", "asimdhp"},
    {"__ARM_FEATURE_DOTPROD", "asimddp"},
    {"__ARM_FEATURE_SVE", "sve"},
    {"__ARM_FEATURE_SVE2", "sve2"},
    {"__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", "bf16"},
    {"__ARM_FEATURE_MATMUL_INT8", "i8mm"},
};

std::set<std::string> ReadHostFeatures() {
  std::set<std::string> features;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (key != "flags" && key != "Features") continue;  // x86, ARM
    std::istringstream words(line.substr(colon + 1));
    for (std::string word; words >> word;) features.insert(word);
  }
  return features;
}

std::string NameOfMachine(unsigned machine) {
  if (machine == EM_X86_64) return "x86-64";
  if (machine == EM_AARCH64) return "aarch64";
  return absl::StrCat("another architecture (ELF machine ", machine, ")");
}

}  // namespace

const char kFeaturesSymbol[] = "diapason_processor_features";

std::vector<std::string> KnownTriples() { return {kArm, kX86}; }

std::string NormalTriple(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '-');
  const std::string& arch = parts[0];
  const std::string system = absl::StrJoin(parts.begin() + 1, parts.end(), "-");
  if (system != "linux-gnu" && system != "unknown-linux-gnu" && system != "pc-linux-gnu" && system != "none-linux-gnu")
    return "";
  if (arch == "aarch64" || arch == "arm64") return kArm;
  return arch == "x86_64" || arch == "amd64" ? kX86 : "";
}

std::string HostTriple() {
#if defined(__x86_64__)
  return kX86;
#elif defined(__aarch64__)
  return kArm;
#else
  return "";
#endif
}

std::string ArchOfTriple(const std::string& triple) { return triple == kArm ? "aarch64" : "x86-64"; }

std::string BaselineProcessor(const std::string& triple) { return triple == kArm ? "generic" : "x86-64"; }

std::string FeaturesSource() {
  std::string out = absl::StrCat("const char ", kFeaturesSymbol, "[] = \"\"\n");
  for (const Feature& feature : kFeatures)
    absl::StrAppend(&out, "#ifdef ", feature.macro, "\n\" ", feature.name, "\"\n#endif\n");
  return out + ";\n";
}

const std::set<std::string>& HostFeatures() {
  static const auto& features = *new std::set<std::string>(ReadHostFeatures());
  return features;
}

absl::Status CheckFeatures(const std::string& needed, const std::set<std::string>& host) {
  if (host.empty()) return absl::OkStatus();
  std::vector<std::string> missing;
  std::istringstream words(needed);
  for (std::string word; words >> word;)
    if (!host.contains(word)) missing.push_back(word);
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("it is compiled for a processor with ",
                                                    absl::StrJoin(missing, ", "), ", which this one does not have"));
}

absl::Status CheckObjectRunsHere(const std::string& object) {
  Elf64_Ehdr header;
  if (object.size() < sizeof header || object.compare(0, SELFMAG, ELFMAG) != 0)
    return absl::InvalidArgumentError("the kernel binary is no ELF object: it is damaged; build it again");
  std::memcpy(&header, object.data(), sizeof header);
#if defined(__x86_64__)
  const unsigned here = EM_X86_64;
#elif defined(__aarch64__)
  const unsigned here = EM_AARCH64;
#else
  const unsigned here = header.e_machine;
#endif
  if (header.e_machine == here) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("it is compiled for ", NameOfMachine(header.e_machine),
                                                    ", and this machine is ", NameOfMachine(here)));
}

}  // namespace diapason
