// Flags that several commands share, and their checks. A value out of range is refused while parsing, in a message that
// names the flag, the value and what is allowed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
class Option;
class Validator;
}  // namespace CLI

namespace diapason {

// MODEL and the options common to all commands that take one.
struct ModelFlags {
  std::string model;
  int64_t batch = 0;
  std::string layout = "NHWC";
  std::string dtype = "float32";
  double tolerance = 0;                   // --dtype mixed; 0: not given
  std::vector<std::string> input_shapes;  // NAME=1x3x224x224
  std::vector<std::string> dims;          // SYMBOL=16,64,128
  bool strict = false;
  std::map<std::string, std::string> extra;  // options of built-in networks, by name
};

// What the process that reads a model may take.
struct ImportFlags {
  double memory_gib = 0;  // 0: not given
  double seconds = api::Model().import_seconds;
};

void AddModelFlags(CLI::App* command, ModelFlags* flags);
// Of these, what gives a model its sizes: --batch, --input-shape, --dim and the options of built-in networks.
void AddSizeFlags(CLI::App* command, ModelFlags* flags, const std::string& dim_help);
// --import-memory and --import-seconds.
void AddImportFlags(CLI::App* command, ImportFlags* flags);
// --target, required. Types of the model that are a matter of the target, tf32 and mixed, become part of it.
void AddTargetFlag(CLI::App* command, std::string* target, ModelFlags* model);
// --json. Of commands whose progress goes to stderr then: AddJsonFlagBesideProgress.
void AddJsonFlag(CLI::App* command, bool* json);
void AddJsonFlagBesideProgress(CLI::App* command, bool* json);
// --target, --workload and --model of commands that read records: only those of a target, a workload, a network.
void AddTargetFilter(CLI::App* command, std::string* target);
void AddWorkloadFilter(CLI::App* command, std::string* workload);
void AddNetworkFilter(CLI::App* command, std::string* network);
// --tracker, required: whose devices are meant.
void AddTrackerFlag(CLI::App* command, std::string* tracker);
// --listen, required.
void AddListenFlag(CLI::App* command, std::string* listen);
// A check that a value is one of these; help and completions list them.
CLI::Validator OneOf(std::vector<std::string> allowed);
// A whole number or a decimal one within bounds; the current value is the default.
struct WholeBounds {
  int64_t least, most;
};
CLI::Option* AddWhole(CLI::App* command, const std::string& name, int64_t* value, WholeBounds bounds,
                      const std::string& help);
CLI::Option* AddNumber(CLI::App* command, const std::string& name, double* value, double above,
                       const std::string& help);

// InvalidArgument names the flag that is malformed.
absl::StatusOr<api::Model> ModelOf(const ModelFlags& flags, const ImportFlags& import, const std::string& mask);
// --dim of commands that take a model, or a package.
void AddDimFlag(CLI::App* command, std::vector<std::string>* dims, const std::string& help);
// --mask.
void AddMaskFlag(CLI::App* command, std::string* mask);
// "1x3x224x224". InvalidArgument names the text.
absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& text);
// Parses "rack=a,room=2". InvalidArgument names the flag and the invalid part.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(const std::string& flag,
                                                                            const std::string& text);
std::string ShapeText(const std::vector<int64_t>& shape);
// The argument as a shell takes it: in quotes where it needs them.
std::string ShellQuoted(const std::string& arg);
// MODEL and the flags that were given, as a shell takes them.
std::string ModelArguments(const ModelFlags& flags);

}  // namespace diapason
