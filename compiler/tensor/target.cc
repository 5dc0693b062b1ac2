#include "compiler/tensor/target.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/nearest.h"
#include "compiler/tensor/processor.h"

namespace diapason {
namespace {

constexpr int kMaxCores = 4096;
constexpr int kMaxDevice = 1023;

const char* NameOf(TargetKind kind) {
  switch (kind) {
    case TargetKind::kCpu: return "cpu";
    case TargetKind::kOpenCl: return "opencl";
    case TargetKind::kCuda: return "cuda";
  }
  return "?";
}

std::string AttributesOf(TargetKind kind) {
  switch (kind) {
    case TargetKind::kCpu: return "-mcpu=native, -num-cores=2, -mtriple=aarch64-linux-gnu and -caches=warm";
    case TargetKind::kOpenCl: return "-device=0 and -caches=warm";
    case TargetKind::kCuda:
      return "-arch=sm_90, -libs=cudnn,cublas, -strict-fp32, -tf32, -norms=deferred, -device=0 and -caches=warm";
  }
  return "";
}

absl::Status Invalid(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("target \"", text, "\": ", why));
}

// Names of architectures reach compilers as arguments, so nothing but a plain word passes.
bool IsWord(const std::string& text) {
  return !text.empty() && text.size() < 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == '+';
  });
}

bool IsCudaArch(const std::string& text) {  // sm_90, sm_90a
  if (text.size() < 5 || text.size() > 7 || text.compare(0, 3, "sm_") != 0) return false;
  const size_t digits = std::count_if(text.begin() + 3, text.end(), absl::ascii_isdigit);
  const size_t suffix = text.size() - 3 - digits;
  return digits >= 2 && (suffix == 0 || (suffix == 1 && (text.back() == 'a' || text.back() == 'f')));
}

// What other compilers call these kinds, and names that were mistyped.
std::string KindHint(const std::string& word) {
  if (word == "gpu" || word == "nvidia" || word == "nvptx") return "did you mean 'cuda'? ";
  if (word == "llvm" || word == "host" || word == "x86") return "did you mean 'cpu'? ";
  return DidYouMean(word, {"cpu", "opencl", "cuda"});
}

class TargetParser {
 public:
  explicit TargetParser(const std::string& text) : text_(text) {}

  absl::StatusOr<Target> Run() {
    const std::vector<std::string> words = absl::StrSplit(text_, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.empty()) return absl::InvalidArgumentError("the target is empty: use cpu, opencl or cuda");
    RETURN_IF_ERROR(ReadKind(words[0]));
    for (size_t i = 1; i < words.size(); ++i) RETURN_IF_ERROR(ReadAttribute(words[i]));
    RETURN_IF_ERROR(CompleteTriple());
    return target_;
  }

 private:
  absl::Status ReadKind(const std::string& word) {
    for (TargetKind kind : {TargetKind::kCpu, TargetKind::kOpenCl, TargetKind::kCuda}) {
      if (word != NameOf(kind)) continue;
      target_.kind = kind;
      return absl::OkStatus();
    }
    return Invalid(text_, absl::StrCat("unknown kind '", word, "': ", KindHint(word), "use cpu, opencl or cuda"));
  }

  absl::Status ReadAttribute(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name == "-libs" && !Knows(name))
      return Invalid(text_, "only cuda has libraries to call: leave -libs out, or use cuda");
    if (!Knows(name))
      return Invalid(text_, absl::StrCat("unknown attribute '", name, "': ", DidYouMean(name, KnownAttributes()),
                                         NameOf(target_.kind), " takes ", AttributesOf(target_.kind)));
    if (name == "-strict-fp32" && equals != std::string::npos)
      return Invalid(text_, "the attribute '-strict-fp32' takes no value: write it alone");
    if (value.empty() && name != "-strict-fp32" && word != "-tf32")
      return Invalid(
          text_, absl::StrCat("the attribute '", name, "' has no value: write it as in ", AttributesOf(target_.kind)));
    if (std::count(seen_.begin(), seen_.end(), name) > 0)
      return Invalid(text_, absl::StrCat("the attribute '", name, "' is given twice: give it once"));
    seen_.push_back(name);
    if (name == "-arch") return ReadArch(value);
    if (name == "-mcpu") return ReadMcpu(value);
    if (name == "-mtriple") return ReadTriple(value);
    if (name == "-libs") return ReadLibs(value);
    if (name == "-caches") return ReadCaches(value);
    if (name == "-norms") return ReadNorms(value);
    if (name == "-strict-fp32") target_.strict_fp32 = true;
    if (name == "-tf32") RETURN_IF_ERROR(ReadTf32(value));
    if (target_.strict_fp32 && target_.tf32 > 0)
      return Invalid(text_, "-strict-fp32 excludes what -tf32 allows: give one of the two");
    if (name == "-strict-fp32" || name == "-tf32") return absl::OkStatus();
    if (name == "-num-cores") return ReadNumber(name, value, 1, kMaxCores, &target_.num_cores);
    return ReadNumber(name, value, 0, kMaxDevice, &target_.device);
  }

  std::vector<std::string> KnownAttributes() const {
    std::vector<std::string> names = {"-mcpu", "-mtriple",     "-num-cores", "-device", "-arch",
                                      "-libs", "-strict-fp32", "-tf32",      "-caches", "-norms"};
    std::erase_if(names, [&](const std::string& name) { return !Knows(name); });
    return names;
  }

  bool Knows(const std::string& name) const {
    if (name == "-caches") return true;
    switch (target_.kind) {
      case TargetKind::kCpu: return name == "-mcpu" || name == "-mtriple" || name == "-num-cores";
      case TargetKind::kOpenCl: return name == "-device";
      case TargetKind::kCuda:
        return name == "-arch" || name == "-libs" || name == "-strict-fp32" || name == "-tf32" || name == "-device" ||
               name == "-norms";
    }
    return false;
  }

  absl::Status ReadArch(const std::string& value) {
    if (!IsCudaArch(value))
      return Invalid(text_, absl::StrCat("'", value, "' is no architecture: write it as in -arch=sm_90"));
    // The suffix names the same device: what it alone has is used anyway.
    target_.arch = value.substr(0, value.find_last_of("0123456789") + 1);
    return absl::OkStatus();
  }

  absl::Status ReadMcpu(const std::string& value) {
    if (!IsWord(value))
      return Invalid(text_, absl::StrCat("'", value, "' is no processor: write it as in -mcpu=native"));
    target_.mcpu = value;
    return absl::OkStatus();
  }

  absl::Status ReadTriple(const std::string& value) {
    target_.triple = NormalTriple(value);
    if (target_.triple.empty())
      return Invalid(text_, absl::StrCat("unknown triple '", value, "': ", DidYouMean(value, KnownTriples()), "use ",
                                         absl::StrJoin(KnownTriples(), " or ")));
    if (target_.triple == HostTriple()) target_.triple.clear();
    return absl::OkStatus();
  }

  // A triple without a processor means any processor of that architecture.
  absl::Status CompleteTriple() {
    if (!target_.is_foreign()) return absl::OkStatus();
    const bool given = std::count(seen_.begin(), seen_.end(), "-mcpu") > 0;
    if (given && target_.mcpu == Target().mcpu)
      return Invalid(text_, absl::StrCat("this machine is no ", target_.triple,
                                         ": leave -mcpu=native out, or name a processor, as in -mcpu=neoverse-n1"));
    if (!given) target_.mcpu = BaselineProcessor(target_.triple);
    return absl::OkStatus();
  }

  absl::Status ReadLibs(const std::string& value) {
    target_.libs = absl::StrSplit(value, ',');
    for (const std::string& lib : target_.libs)
      if (lib != "cudnn" && lib != "cublas")
        return Invalid(text_, absl::StrCat("unknown library '", lib, "': use cudnn, cublas or both"));
    std::sort(target_.libs.begin(), target_.libs.end());
    target_.libs.erase(std::unique(target_.libs.begin(), target_.libs.end()), target_.libs.end());
    return absl::OkStatus();
  }

  absl::Status ReadNorms(const std::string& value) {
    for (const Norms norms : {Norms::kDeferred, Norms::kApart}) {
      if (value != NameOf(norms)) continue;
      target_.norms = norms;
      return absl::OkStatus();
    }
    return Invalid(text_,
                   absl::StrCat("the attribute '-norms' is '", value, "': ", DidYouMean(value, {"deferred", "apart"}),
                                "use deferred or apart, or leave it out"));
  }

  absl::Status ReadCaches(const std::string& value) {
    for (const Caches caches : {Caches::kNetwork, Caches::kWarm, Caches::kFlushed}) {
      if (value != NameOf(caches)) continue;
      target_.caches = caches;
      return absl::OkStatus();
    }
    return Invalid(text_, absl::StrCat("the attribute '-caches' is '", value,
                                       "': ", DidYouMean(value, {"network", "warm", "flushed"}),
                                       "use warm, flushed or network, the default"));
  }

  absl::Status ReadTf32(const std::string& value) {
    target_.tf32 = std::numeric_limits<double>::infinity();
    if (value.empty()) return absl::OkStatus();
    if (!absl::SimpleAtod(value, &target_.tf32) || !(target_.tf32 > 0 && target_.tf32 < 1))
      return Invalid(text_, absl::StrCat("the attribute '-tf32' is '", value,
                                         "': write it alone, or with a relative error above 0 and below 1, as in "
                                         "-tf32=1e-3"));
    return absl::OkStatus();
  }

  absl::Status ReadNumber(const std::string& name, const std::string& value, int min, int max, int* out) {
    if (!absl::SimpleAtoi(value, out) || *out < min || *out > max)
      return Invalid(
          text_, absl::StrCat("the attribute '", name, "' is '", value, "': give a number from ", min, " to ", max));
    return absl::OkStatus();
  }

  const std::string& text_;
  Target target_;
  std::vector<std::string> seen_;
};

}  // namespace

const char* NameOf(Caches caches) {
  switch (caches) {
    case Caches::kNetwork: return "network";
    case Caches::kWarm: return "warm";
    case Caches::kFlushed: return "flushed";
  }
  return "?";
}

const char* NameOf(Norms norms) {
  switch (norms) {
    case Norms::kEither: return "either";
    case Norms::kDeferred: return "deferred";
    case Norms::kApart: return "apart";
  }
  return "?";
}

Target Target::ForKernels() const {
  Target target = *this;
  target.caches = Caches::kNetwork;
  target.norms = Norms::kEither;
  return target;
}

std::string Target::ToString() const {
  std::string out = NameOf(kind);
  if (!arch.empty()) absl::StrAppend(&out, " -arch=", arch);
  if (!triple.empty()) absl::StrAppend(&out, " -mtriple=", triple);
  if (kind == TargetKind::kCpu && mcpu != Target().mcpu) absl::StrAppend(&out, " -mcpu=", mcpu);
  if (num_cores != 0) absl::StrAppend(&out, " -num-cores=", num_cores);
  if (!libs.empty()) absl::StrAppend(&out, " -libs=", absl::StrJoin(libs, ","));
  if (strict_fp32) absl::StrAppend(&out, " -strict-fp32");
  if (std::isfinite(tf32) && tf32 > 0) absl::StrAppend(&out, " -tf32=", tf32);
  if (std::isinf(tf32)) absl::StrAppend(&out, " -tf32");
  if (device != 0) absl::StrAppend(&out, " -device=", device);
  if (caches != Caches::kNetwork) absl::StrAppend(&out, " -caches=", NameOf(caches));
  if (norms != Norms::kEither) absl::StrAppend(&out, " -norms=", NameOf(norms));
  return out;
}

absl::StatusOr<Target> Target::Parse(const std::string& text) { return TargetParser(text).Run(); }

int CudaArchNumber(const std::string& arch) { return arch.rfind("sm_", 0) == 0 ? std::atoi(arch.c_str() + 3) : 0; }

}  // namespace diapason
