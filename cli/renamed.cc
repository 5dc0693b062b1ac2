#include "cli/renamed.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

// Of a command and all commands below it.
struct RenamedFlag {
  std::vector<std::string> command;
  const char* old_name;
  const char* name;
};

const std::vector<RenamedFlag>& RenamedFlags() {
  static const auto* const flags = new std::vector<RenamedFlag>{
      {{"submit"}, "--give-up", "--timeout"},
      {{"jobs"}, "--give-up", "--timeout"},
      {{"serve"}, "--running", "--max-running-jobs"},
      {{"serve"}, "--unfinished", "--max-queued-jobs"},
      {{"fleet", "status"}, "--wait", "--wait-timeout"},
      {{"tune"}, "--wait", "--wait-timeout"},
      {{"tune"}, "--labels", "--selector"},
      {{"submit"}, "--labels", "--selector"},
  };
  return *flags;
}

bool BeginsWith(const std::vector<std::string>& words, const std::vector<std::string>& start) {
  return words.size() >= start.size() && std::equal(start.begin(), start.end(), words.begin());
}

// Null: it has kept its name.
const RenamedFlag* Find(const std::vector<std::string>& command, const std::string& flag) {
  for (const RenamedFlag& one : RenamedFlags())
    if (flag == one.old_name && BeginsWith(command, one.command)) return &one;
  return nullptr;
}

std::string Warning(const std::string& old_name, const std::string& name) {
  return absl::StrCat(old_name, " is deprecated and will be removed in the next release; use ", name);
}

}  // namespace

CurrentArguments ReplaceOldNames(const std::vector<std::string>& args) {
  CurrentArguments current{args, {}};
  if (BeginsWith(args, {"history", "distill"})) {
    current.args[1] = "prune";
    current.warnings.push_back(Warning("`history distill`", "`history prune`"));
  }
  for (std::string& arg : current.args) {
    const std::string flag = arg.substr(0, arg.find('='));
    if (flag == kFlushFlag && (BeginsWith(args, {"tune"}) || BeginsWith(args, {"submit"})))
      current.warnings.push_back(Warning(flag, "--target \"TARGET -caches=flushed\""));
    const RenamedFlag* renamed = Find(args, flag);
    if (renamed == nullptr) continue;
    arg = renamed->name + arg.substr(flag.size());
    current.warnings.push_back(Warning(renamed->old_name, renamed->name));
  }
  return current;
}

std::string CurrentKey(const std::vector<std::string>& command, const std::string& key) {
  const RenamedFlag* renamed = Find(command, "--" + key);
  return renamed == nullptr ? key : std::string(renamed->name).substr(2);
}

}  // namespace diapason
