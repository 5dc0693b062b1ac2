// Sketch rules (Ansor's derivation rules): each looks at one stage of a draft and derives drafts from it. One file a rule
// under rules/; the order in which they are tried is in rules/registry.cc. User rules go in front.
#pragma once

#include <memory>
#include <string>
#include <vector>

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

// Derives all sketches of a dag (a view's). Each draft's root stages are bound; names are unique.
std::vector<Draft> GenerateSketches(const ComputeDag& dag, const SketchContext& context, const SketchRules& rules);

}  // namespace diapason
