// Sketch rules (Ansor's derivation rules): each looks at one stage of a draft and derives drafts from it. One file a
// rule under rules/; the order in which they are tried is in rules/registry.cc. Rules of users go in front
// (RegisterSketchRule).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/sketch/draft.h"

namespace diapason {

class SketchRule {
 public:
  enum class Answer {
    kSkip,             // does not apply
    kApply,            // applies; other rules may give further drafts
    kApplyAndSkipRest  // applies, and nothing else shall
  };
  struct Derived {
    Draft draft;
    bool again;  // the same stage is looked at again, else the one before it
  };
  virtual ~SketchRule() = default;
  virtual std::string name() const = 0;
  virtual Answer Condition(const Draft& draft, int stage) const = 0;
  // REQUIRES: Condition did not answer kSkip.
  virtual std::vector<Derived> Apply(const Draft& draft, int stage) const = 0;
};

using SketchRules = std::vector<std::unique_ptr<SketchRule>>;

// The built-in rules of a target kind, in the order in which they are tried.
SketchRules DefaultRules(const Target& target);

// Makes a rule for a target, or null where it has none to offer.
using SketchRuleMaker = std::function<std::unique_ptr<SketchRule>(const Target&)>;

// Adds a rule of the user's: every TaskSpace made from now on tries it before the built-in rules, behind those
// registered earlier. A rule of the same name is replaced and keeps its place. What it records needs no rule to be
// replayed: schedules are steps. `make` is called from any thread that makes a space. All three are safe from any
// thread.
void RegisterSketchRule(const std::string& name, SketchRuleMaker make);
// False when there is none of that name.
bool UnregisterSketchRule(const std::string& name);
// The rules of users, then DefaultRules: what TaskSpace::Create derives sketches by.
SketchRules RulesFor(const Target& target);

// Derives all sketches of a dag (a rewrite's). Each draft's root stages are bound; names are unique. InvalidArgument
// names the rule that took a step which does not apply, and the step.
absl::StatusOr<std::vector<Draft>> GenerateSketches(const ComputeDag& dag, const SketchContext& context,
                                                    const SketchRules& rules);

}  // namespace diapason
