// Processors that kernels in C are compiled for: triples, and the features that a machine must have to run an object.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace diapason {

// Pairs of bytes whose products one instruction adds to a lane of 32 bits (x86: vpdpbusd; ARM: sdot).
inline constexpr int kDotBytes = 4;

// "x86_64-linux-gnu" and "aarch64-linux-gnu", as Debian names cross compilers.
std::vector<std::string> KnownTriples();
// The known triple that `text` means ("arm64-linux-gnu", "aarch64-unknown-linux-gnu"); empty: none.
std::string NormalTriple(const std::string& text);
// That of this program. Empty on an architecture that is not known.
std::string HostTriple();
// "x86-64" or "aarch64" of a known triple.
std::string ArchOfTriple(const std::string& triple);
// The oldest processor of a triple, by the compiler's name: code for it runs on all.
std::string BaselineProcessor(const std::string& triple);

// C source of a constant, named kFeaturesSymbol, with the names of the features that the compiler was allowed to use,
// as /proc/cpuinfo writes them, each behind a space. Every object of kernels has it, so that it says itself what it
// needs.
extern const char kFeaturesSymbol[];
std::string FeaturesSource();

// Features of this machine, of /proc/cpuinfo. Empty where that cannot be read.
const std::set<std::string>& HostFeatures();

// FailedPrecondition names what is missing in `host` of the features in `needed` (as in the constant above). An empty
// host is not known, and passes.
absl::Status CheckFeatures(const std::string& needed, const std::set<std::string>& host);

// Whether an ELF object is one of this machine's architecture: FailedPrecondition names both architectures,
// InvalidArgument says that it is no object.
absl::Status CheckObjectRunsHere(const std::string& object);

}  // namespace diapason
