// What measuring a candidate gave: a time or a reason, never both and never a number that stands for a failure. Used by
// workers that measure, by the search that learns and by the history that keeps; depends on the standard library only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace diapason {

// Why a measurement gave no time. Histories and messages carry the names of ErrorKindName, which never change meaning;
// the numbers are free to change. A new kind is an enumerator here, its name in outcome.cc, and a new version of the
// history with a line in docs/history.md, so that older programs refuse the file instead of misreading it.
enum class ErrorKind : uint8_t {
  kUnknown = 0,     // failed in a way that has no name
  kInstantiation,   // the steps do not replay on the workload
  kLowering,        // no loop nest, or one that breaks a limit of the target
  kCompile,         // the compiler refused the source
  kBuildTimeout,    // lowering and compiling took longer than the deadline
  kBuildCrash,      // the builder process died
  kRunTimeout,      // the kernel did not finish before the deadline
  kRunCrash,        // the runner process died
  kOutOfMemory,     // of the host or of the device
  kIllegalAccess,   // the device reports an access outside its buffers
  kLaunchFailure,   // the driver refused the launch (registers, shared memory, grid)
  kWrongResult,     // ran, and differs from the reference implementation
  kInfrastructure,  // worker, network or device lost: says nothing of the candidate; measured again elsewhere
};

// How far a measurement got. (`Stage` is a step of a ComputeDag.)
enum class MeasureStage : uint8_t {
  kUnknown = 0,
  kQueue,        // not started: waiting for or on its way to a worker
  kInstantiate,  // replaying the steps
  kLower,
  kCompile,
  kLoad,    // loading the binary, allocating and filling the buffers
  kRun,     // launching and timing
  kVerify,  // comparing with the reference implementation
};

// Repeated timings of a candidate that ran.
struct Timing {
  std::vector<double> samples;  // raw repeats in order: seconds of one launch, the mean over `number` launches
  int64_t number = 1;           // launches of each sample
  bool stopped_early = false;   // since clearly slower than the best: samples are few and short
  double build_seconds = 0;     // wall clock of lowering and compiling
  double run_seconds = 0;       // wall clock of everything on the device, warm-up included
  bool operator==(const Timing&) const = default;
};

struct MeasureError {
  ErrorKind kind = ErrorKind::kUnknown;
  MeasureStage stage = MeasureStage::kUnknown;
  std::string text;  // what the compiler, driver or supervisor said
  bool operator==(const MeasureError&) const = default;
};

using Outcome = std::variant<Timing, MeasureError>;

// Middle sample, or the mean of the two middle ones: what records are ordered by. REQUIRES: samples is not empty.
double MedianSeconds(const Timing& timing);

// False for a failure that says nothing of the candidate (kInfrastructure): no label for the cost model, measured
// again.
bool SpeaksOfCandidate(const Outcome& outcome);

// "run_timeout", "illegal_access", ...; "instantiate", "run", ... Stable: stored in histories.
const char* ErrorKindName(ErrorKind kind);
const char* StageName(MeasureStage stage);
// Nothing for a name that this version does not know.
std::optional<ErrorKind> ParseErrorKind(const std::string& name);
std::optional<MeasureStage> ParseStage(const std::string& name);
// All kinds in order of declaration, for tables.
const std::vector<ErrorKind>& AllErrorKinds();

}  // namespace diapason
