#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "diapason/devices.h"

namespace diapason {
namespace {

// Options of built-in networks that a flag of every model command, or of tune and run, has the name of. They are given
// through --set.
bool TakenName(const std::string& name) {
  static const std::set<std::string> taken = {"batch", "layout", "dtype",  "dim",    "mask", "strict",
                                              "seed",  "trials", "repeat", "number", "out"};
  return taken.count(name) != 0;
}

// All options of built-in networks, each once, with the networks that have it.
std::map<std::string, std::pair<std::string, std::vector<std::string>>> BuiltinOptions() {
  std::map<std::string, std::pair<std::string, std::vector<std::string>>> options;
  for (const api::BuiltinNetwork& network : api::Networks()) {
    for (const api::NetworkOption& option : network.options) {
      options[option.name].first = option.help;
      options[option.name].second.push_back(network.name);
    }
  }
  return options;
}

void AddBuiltinFlags(CLI::App* command, ModelFlags* flags) {
  for (const auto& [name, about] : BuiltinOptions()) {
    if (TakenName(name)) continue;
    const std::vector<std::string>& networks = about.second;
    const std::string of = networks.size() > 4 ? "built-in networks" : absl::StrJoin(networks, ", ");
    command
        ->add_option_function<std::string>(
            "--" + name, [flags, name = name](const std::string& value) { flags->extra[name] = value; },
            absl::StrCat(about.first, " (", of, ")"))
        ->type_name("N")
        ->group("");  // `diapason networks NAME` shows them
  }
  command
      ->add_option_function<std::vector<std::string>>(
          "--set",
          [flags](const std::vector<std::string>& pairs) {
            for (const std::string& pair : pairs) {
              const size_t equals = pair.find('=');
              if (equals == std::string::npos || equals == 0) {
                throw CLI::ValidationError("--set", pair + ": write NAME=VALUE, with a name of `diapason networks`");
              }
              flags->extra[pair.substr(0, equals)] = pair.substr(equals + 1);
            }
          },
          "Option of a built-in network (`diapason networks NAME` lists them), for example image=64; may be repeated")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

std::optional<int64_t> ParseWhole(const std::string& text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

}  // namespace

CLI::Validator OneOf(std::vector<std::string> allowed) {
  const std::string choices = absl::StrCat("{", absl::StrJoin(allowed, ","), "}");  // as the help shows them
  const std::string list = absl::StrJoin(allowed, " or ");
  return CLI::Validator(
      [allowed = std::move(allowed), list](std::string& text) {
        const bool known = std::find(allowed.begin(), allowed.end(), text) != allowed.end();
        return known ? std::string() : absl::StrCat(text, ": give ", list);
      },
      choices);
}

CLI::Option* AddWhole(CLI::App* command, const std::string& name, int64_t* value, WholeBounds bounds,
                      const std::string& help) {
  CLI::Validator check(
      [least = bounds.least, most = bounds.most](std::string& text) {
        const std::optional<int64_t> number = ParseWhole(text);
        if (number.has_value() && *number >= least && *number <= most) return std::string();
        if (most == std::numeric_limits<int64_t>::max()) {
          return absl::StrCat(text, ": give a whole number of at least ", least);
        }
        return absl::StrCat(text, ": give a whole number from ", least, " to ", most);
      },
      "");
  return command->add_option(name, *value, help)->check(check)->type_name("N");
}

CLI::Option* AddNumber(CLI::App* command, const std::string& name, double* value, double above,
                       const std::string& help) {
  CLI::Validator check(
      [above](std::string& text) {
        double number = 0;
        if (absl::SimpleAtod(text, &number) && std::isfinite(number) && number > above) return std::string();
        return absl::StrCat(text, ": give a number above ", above);
      },
      "");
  return command->add_option(name, *value, help)->check(check)->type_name("X");
}

void AddSizeFlags(CLI::App* command, ModelFlags* flags, const std::string& dim_help) {
  AddWhole(command, "--batch", &flags->batch, {1, 1 << 20}, "First extent of every input (default: the model's, or 1)");
  command->add_option("--input-shape", flags->input_shapes, "Shape of an input, NAME=1x3x224x224; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME=SHAPE");
  AddDimFlag(command, &flags->dims, dim_help);
  AddBuiltinFlags(command, flags);
}

void AddModelFlags(CLI::App* command, ModelFlags* flags) {
  command->add_option("MODEL", flags->model, "An .onnx file, or a built-in network (`diapason networks`)")
      ->required()
      ->type_name("");
  command->add_option("--layout", flags->layout, "NHWC (default) or NCHW: layout of images inside the network")
      ->check(OneOf({"NHWC", "NCHW"}))
      ->type_name("LAYOUT");
  command
      ->add_option("--dtype", flags->dtype,
                   "Type of weights and activations: float32 (default), float16 or bfloat16; on cuda also tf32 "
                   "(float32, with products that may be rounded to TensorFloat-32) or mixed (as tf32, for tasks whose "
                   "result stays within --tolerance)")
      ->check(OneOf({"float32", "float16", "bfloat16", "tf32", "mixed"}))
      ->type_name("TYPE");
  AddSizeFlags(
      command, flags,
      "Sizes of a symbolic dimension of the model, as in seq=16,64,128, or a range: seq=1..512 stands for the powers "
      "of two in it and 1.5 times these; may be repeated. Each combination of sizes becomes a plan of the package");
  command->add_flag("--strict", flags->strict,
                    "Reject a model that contains float64 (otherwise computed in float32, with a warning) or has a "
                    "newer ONNX opset than the known ones (otherwise read as the newest known one, with a warning)");
}

void AddImportFlags(CLI::App* command, ImportFlags* flags) {
  const std::string group = "Limits of reading a model";
  AddNumber(command, "--import-memory", &flags->memory_gib, 0,
            "GiB of memory that reading and partitioning the model may take (default: half of the host's)")
      ->type_name("GIB")
      ->group(group);
  AddNumber(command, "--import-seconds", &flags->seconds, 0,
            "Seconds that reading and partitioning the model may take (default 300)")
      ->group(group);
}

void AddTargetFlag(CLI::App* command, std::string* target, ModelFlags* model) {
  command
      ->add_option(
          "--target", *target,
          "Device to compile for: cpu, opencl or cuda, with attributes as in \"cuda -arch=sm_90\", \"cpu "
          "-num-cores=2\", \"cuda -libs=cudnn,cublas\" (libraries that compete with generated kernels) or \"cuda "
          "-caches=warm\" (candidates are timed with their operands in the caches, as a kernel by itself; flushed: "
          "with nothing in them; default: as in a network) or \"cuda -norms=apart\" (float16 and bfloat16: layer "
          "normalizations in kernels of their own; deferred: behind the products that read them; default: what is "
          "likely faster)")
      ->required()
      ->type_name("TARGET");
  command->add_flag_callback(
      "--strict-fp32", [target] { *target += " -strict-fp32"; },
      "cuda: no float32 products on tensor cores (3xTF32, 3xFP16); same as -strict-fp32 in the target");
  AddNumber(command, "--tolerance", &model->tolerance, 0,
            "Largest relative error of a task's result for --dtype mixed (default 1e-3)");
  command->parse_complete_callback([target, model] {
    api::Model moved;
    moved.dtype = model->dtype;
    moved.tolerance = model->tolerance;
    if (const absl::Status status = api::MoveTypeToTarget(moved, *target); !status.ok())
      throw CLI::ValidationError("--dtype", absl::StrCat(model->dtype, ": ", status.message()));
    model->dtype = moved.dtype;
    model->tolerance = moved.tolerance;
  });
}

absl::StatusOr<std::vector<int64_t>> ParseShape(const std::string& text) {
  std::vector<int64_t> shape;
  for (const std::string& part : static_cast<std::vector<std::string>>(absl::StrSplit(text, 'x'))) {
    const std::optional<int64_t> extent = ParseWhole(part);
    if (!extent.has_value() || *extent < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shape ", text.empty() ? "\"\"" : text, " is not understood; write it as 1x3x224x224"));
    }
    shape.push_back(*extent);
  }
  return shape;
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParsePairs(const std::string& flag,
                                                                            const std::string& text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  if (text.empty()) return pairs;
  for (const std::string& piece : static_cast<std::vector<std::string>>(absl::StrSplit(text, ','))) {
    const size_t equals = piece.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(absl::StrCat(flag, " ", text, " is not understood; write it as rack=a,room=2"));
    }
    pairs.emplace_back(piece.substr(0, equals), piece.substr(equals + 1));
  }
  return pairs;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return shape.empty() ? "scalar" : absl::StrJoin(shape, "x");
}

std::string ShellQuoted(const std::string& arg) {
  const bool quote = arg.empty() || arg.find_first_of(" \t\"'$&;|<>*?") != std::string::npos;
  return quote ? "'" + absl::StrReplaceAll(arg, {{"'", "'\\''"}}) + "'" : arg;
}

std::string ModelArguments(const ModelFlags& flags) {
  std::string text = ShellQuoted(flags.model);
  const auto add = [&](const std::string& flag, const std::string& value) {
    absl::StrAppend(&text, " ", flag, " ", ShellQuoted(value));
  };
  const ModelFlags defaults;
  if (flags.batch > 0) add("--batch", absl::StrCat(flags.batch));
  if (flags.layout != defaults.layout) add("--layout", flags.layout);
  if (flags.dtype != defaults.dtype) add("--dtype", flags.dtype);
  for (const std::string& shape : flags.input_shapes) add("--input-shape", shape);
  for (const std::string& dim : flags.dims) add("--dim", dim);
  if (flags.strict) absl::StrAppend(&text, " --strict");
  for (const auto& [name, value] : flags.extra) add("--set", absl::StrCat(name, "=", value));
  return text;
}

absl::StatusOr<api::Model> ModelOf(const ModelFlags& flags, const ImportFlags& import, const std::string& mask) {
  api::Model model;
  model.source = flags.model;
  model.batch = flags.batch;
  model.layout = flags.layout;
  model.dtype = flags.dtype;
  for (const std::string& pair : flags.input_shapes) {
    const size_t equals = pair.rfind('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--input-shape ", pair, " is not understood; write it as NAME=1x3x224x224"));
    }
    ASSIGN_OR_RETURN(model.input_shapes[pair.substr(0, equals)], ParseShape(pair.substr(equals + 1)));
  }
  model.dims = flags.dims;
  model.mask = mask;
  model.strict = flags.strict;
  model.options = flags.extra;
  model.import_memory_gib = import.memory_gib;
  model.import_seconds = import.seconds;
  return model;
}

void AddDimFlag(CLI::App* command, std::vector<std::string>* dims, const std::string& help) {
  command->add_option("--dim", *dims, help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("SYMBOL=SIZES");
}

void AddMaskFlag(CLI::App* command, std::string* mask) {
  command
      ->add_option("--mask", *mask,
                   "Input that is 1 at real positions of a sequence and 0 at padded ones; it allows padding of inputs "
                   "whose sizes are between those of --dim")
      ->type_name("INPUT");
}

void AddJsonFlag(CLI::App* command, bool* json) {
  command->add_flag("--json", *json, "Print one JSON document instead of text");
}

void AddJsonFlagBesideProgress(CLI::App* command, bool* json) {
  command->add_flag("--json", *json, "Print one JSON document on stdout, and progress on stderr");
}

void AddTargetFilter(CLI::App* command, std::string* target) {
  command->add_option("--target", *target, "Only records of this target")->type_name("TARGET");
}

void AddWorkloadFilter(CLI::App* command, std::string* workload) {
  command->add_option("--workload", *workload, "Only this workload: its key, or a prefix of the key")->type_name("KEY");
}

void AddNetworkFilter(CLI::App* command, std::string* network) {
  command->add_option("--model", *network, "Only the tasks of this network")->type_name("NAME");
}

void AddTrackerFlag(CLI::App* command, std::string* tracker) {
  command->add_option("--tracker", *tracker, "Address of the tracker; of several, the one that answers is used")
      ->required()
      ->type_name("HOST:PORT[,HOST:PORT]");
}

void AddListenFlag(CLI::App* command, std::string* listen) {
  command->add_option("--listen", *listen, "Address to listen on; port 0 selects a free port")
      ->required()
      ->type_name("HOST:PORT");
}

}  // namespace diapason
