#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "scheduler/sketch/rule.h"

namespace diapason {
namespace {

struct Registered {
  std::string name;
  SketchRuleMaker make;
};

struct Registry {
  Mutex mutex;
  std::vector<Registered> rules ABSL_GUARDED_BY(mutex);  // in the order in which they are tried

  std::vector<Registered>::iterator Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return std::find_if(rules.begin(), rules.end(), [&](const Registered& rule) { return rule.name == name; });
  }
};

// Never destroyed: rules may be registered before main and asked for after it.
Registry& TheRegistry() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace

void RegisterSketchRule(const std::string& name, SketchRuleMaker make) {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  if (const auto found = registry.Find(name); found != registry.rules.end()) {
    found->make = std::move(make);
  } else {
    registry.rules.push_back({name, std::move(make)});
  }
}

bool UnregisterSketchRule(const std::string& name) {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  const auto found = registry.Find(name);
  if (found == registry.rules.end()) return false;
  registry.rules.erase(found);
  return true;
}

SketchRules RulesFor(const Target& target) {
  std::vector<Registered> registered;
  {
    Registry& registry = TheRegistry();
    MutexLock lock(registry.mutex);
    registered = registry.rules;
  }
  SketchRules rules;
  for (const Registered& rule : registered) {
    if (std::unique_ptr<SketchRule> made = rule.make(target)) rules.push_back(std::move(made));
  }
  for (std::unique_ptr<SketchRule>& rule : DefaultRules(target)) rules.push_back(std::move(rule));
  return rules;
}

}  // namespace diapason
