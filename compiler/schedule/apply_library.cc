#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/schedule/apply_step.h"
#include "compiler/schedule/library.h"

// A library computes stages.
namespace diapason {

absl::Status ApplyLibrary(ScheduledStages& stages, const Step& step) {
  if (step.ints.size() != 2 || step.factors.size() != 1 || step.ints[1] < 0 || step.ints[1] > 1)
    return BadStep(stages.at(step.stage), "a library call takes a library, whether it is fused, and an algorithm");
  Library library{};
  for (Library known : AllLibraries())
    if (step.ints[0] == static_cast<int>(known)) library = known;
  if (library == Library{}) return BadStep(stages.at(step.stage), absl::StrCat("there is no library ", step.ints[0]));
  std::vector<const Stage*> ops;
  for (const StageState& stage : stages.all()) ops.push_back(&stage.op);
  ASSIGN_OR_RETURN(const LibraryMatch match, MatchLibrary(ops, stages.outputs(), library, step.ints[1] == 1));
  if (match.last != step.stage || match.anchor != step.target)
    return BadStep(stages.at(step.stage), absl::StrCat("it is not what ", TitleOf(library), " would compute"));
  std::vector<int> taken = match.covered;
  taken.push_back(match.last);
  for (int id : taken) {
    const bool fresh = static_cast<int>(stages.at(id).loops.size()) == stages.at(id).axis_count();
    if (!fresh || stages.at(id).attach != StageState::Attach::kRoot || stages.at(id).prologue ||
        stages.at(id).library != nullptr)
      return BadStep(stages.at(id), "it is scheduled already, so no library can compute it");
  }
  std::vector<int> operands = match.operands;
  if (match.repack_weights) {
    RETURN_IF_ERROR(ApplyCacheRead(stages, {StepKind::kCacheRead, operands[1], {}, {}, -1, {0, match.anchor}}));
    StageState& packed = stages.last();
    packed.op.name = stages.UniqueName(stages.at(operands[1]).op.name + ".packed");
    packed.layout_factors.assign(4, Factor::Of(1));
    packed.layout_order = {6, 7, 0, 1, 2, 3, 4, 5};  // filters, rows, columns, channels
    operands[1] = stages.size() - 1;
  }
  StageState& last = stages.at(match.last);
  if (match.narrow) {
    last.op.dtype = std::get<ConvolutionCall>(match.call.what).dtype;
    for (int id = 0; id < stages.size(); ++id) {
      StageState& reader = stages.at(id);
      if (!reader.op.body) continue;
      reader.op.body = ReplaceLoads(reader.op.body, match.last, [&](const Expr& load) {
        return Cast(load->dtype, Load(match.last, last.op.dtype, load->args));
      });
    }
  }
  for (int id : match.covered) stages.at(id).attach = StageState::Attach::kInlined;
  last.library = std::make_shared<const LibraryCall>(match.call);
  last.library_algorithm = step.factors[0];
  last.library_operands = std::move(operands);
  return absl::OkStatus();
}

}  // namespace diapason
