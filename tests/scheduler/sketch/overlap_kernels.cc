// Writes cubins of overlapping kernels (programmatic dependent launch) for overlap_order.py, which looks at their
// machine code:
//
//   overlap_kernels FOLDER SHARD SHARDS
//
// For sm_90 with TensorFloat-32, without a GPU: of every kind of sketch that offers "overlap", of every task of every
// built-in network and of row reductions, at least one candidate with overlap = 1 or 2, the same ones each time. SHARDS
// processes share them. For each kernel one line on stdout:
//
//   CUBIN \t KERNEL \t PARAMETERS \t new | old \t DESCRIPTION
//
// PARAMETERS has a letter a parameter: c for a constant, v for what other kernels write or read; behind a +, those of
// the tensors that its tensor maps are of. "old" are kernels made
// wrong on purpose: all parameters are __restrict__, so that the compiler takes what they point to as unchanging. Exit
// status 3: no NVRTC here.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/compile.h"
#include "compiler/lower/lower.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/decide.h"
#include "tests/scheduler/sketch/guard.h"

namespace diapason {
namespace {

constexpr uint64_t kSeed = 15;
constexpr int kWrongShare = 12;   // one candidate in so many is made wrong on purpose as well
constexpr int kDrawnShare = 16;   // one in so many is drawn at random
constexpr int kMostOfBatch = 12;  // candidates that are compiled together
constexpr char kWait[] = "wait_for_previous();\n";

struct Candidate {
  std::string description;
  const ComputeDag* dag;
  Schedule schedule;
};

// Of each kind of sketch, by its name, the first task that has it, and for tasks that have no new kind one of their
// sketches.
class Selection {
 public:
  Selection(const Target& target, const DeviceFacts& facts) : target_(target), facts_(facts) {}

  bool Add(const testing::NamedDag& task) {
    const auto space = TaskSpace::Create(task.dag, target_, facts_);
    if (!space.ok()) return Fail(task.name, space.status());
    std::vector<const Space*> offered, fresh;
    for (int i = 0; i < (*space)->size(); ++i) {
      const Space& sketch = (*space)->space(i);
      if (testing::ParameterOf(sketch, "overlap") < 0) continue;
      offered.push_back(&sketch);
      if (taken_[sketch.name()]++ < 1) fresh.push_back(&sketch);
    }
    if (offered.empty()) return true;
    if (fresh.empty()) fresh.push_back(offered[tasks_ % offered.size()]);
    ++tasks_;
    for (const Space* sketch : fresh) Take(task, *sketch);
    return true;
  }

  // One candidate that computed wrong numbers in a network: EfficientNet-B0 on an H200.
  bool AddKnown(const testing::NamedDag& task, const std::string& sketch, const std::vector<int32_t>& configuration) {
    const auto space = TaskSpace::Create(task.dag, target_, facts_);
    if (!space.ok()) return Fail(task.name, space.status());
    const int found = (*space)->Find(sketch);
    if (found < 0 || (*space)->space(found).size() != static_cast<int>(configuration.size()))
      return Fail(task.name,
                  absl::NotFoundError(absl::StrCat("no sketch ", sketch, " of ", configuration.size(), " parameters")));
    const Space& one = (*space)->space(found);
    candidates_.push_back(
        {testing::Describe(task.name, one, 0, configuration), &task.dag, one.Instantiate(configuration)});
    return true;
  }

  const std::vector<Candidate>& candidates() const { return candidates_; }

  static bool Fail(const std::string& what, const absl::Status& status) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), status.ToString().c_str());
    return false;
  }

 private:
  // Most with values as small as can be, whose kernels compile fast; others the default, or a random one.
  void Take(const testing::NamedDag& task, const Space& space) {
    const int number = static_cast<int>(candidates_.size());
    std::vector<int32_t> configuration = number % kDrawnShare == 0   ? testing::DrawCandidate(space, kSeed, number)
                                         : number % kDrawnShare == 1 ? space.Default()
                                                                     : testing::Decide(space, {});
    const int overlap = testing::ParameterOf(space, "overlap");
    configuration[overlap] = 1 + number / kDrawnShare % 2;
    space.Clamp(overlap, absl::MakeSpan(configuration));
    candidates_.push_back(
        {testing::Describe(task.name, space, number, configuration), &task.dag, space.Instantiate(configuration)});
  }

  const Target& target_;
  const DeviceFacts& facts_;
  std::map<std::string, int> taken_;  // by name of the sketch
  size_t tasks_ = 0;
  std::vector<Candidate> candidates_;
};

std::string LettersOf(const LoweredProgram& program, const KernelFunc& kernel) {
  const auto letter = [&](int buffer) {
    const auto role = static_cast<BufferRole>(program.buffers.at(buffer).role);
    return role == BufferRole::kConstant || role == BufferRole::kPrepared ? 'c' : 'v';
  };
  std::string letters;
  for (const BufferDecl& param : kernel.params) letters += letter(param.id);
  const std::vector<MappedTensor> maps = MappedTensorsOf(kernel.body);
  if (!maps.empty()) letters += '+';
  for (const MappedTensor& map : maps) letters += letter(map.buffer);
  return letters;
}

// The source with pointers and bounds as they were before, and the wait at the head of each kernel.
std::string Old(const std::string& source) {
  std::string old = absl::StrReplaceAll(
      source, {{kWait, "\n"}, {"launch_dependents();\n", absl::StrCat("launch_dependents(); ", kWait)}});
  for (size_t at = 0; (at = old.find("__launch_bounds__(", at)) != std::string::npos; ++at) {
    const size_t blocks = old.find_first_of(",)", at);
    old.erase(blocks, old.find(')', blocks) - blocks);
    const size_t end = old.find(") {\n", at), begin = old.find('(', old.find(' ', old.find(')', at) + 1));
    const std::string parameters = absl::StrReplaceAll(old.substr(begin, end - begin), {{"__restrict__ ", ""}});
    old.replace(begin, end - begin, absl::StrReplaceAll(parameters, {{"* ", "* __restrict__ "}}));
  }
  return old;
}

// The kernels of several candidates as one program: starting a compiler, or a disassembler, takes longer than a kernel.
class Batch {
 public:
  Batch(std::string folder, const Target& target, bool old) : folder_(std::move(folder)), target_(target), old_(old) {}

  void Add(int number, const Candidate& candidate, const LoweredProgram& lowered) {
    for (KernelFunc kernel : lowered.kernels) {
      if (!kernel.overlap || kernel.library != nullptr) continue;
      kernel.name += absl::StrCat("_", number);
      lines_.push_back(absl::StrCat(kernel.name, "\t", LettersOf(lowered, kernel), "\t", old_ ? "old" : "new", "\t",
                                    candidate.description));
      all_.kernels.push_back(std::move(kernel));
    }
    if (++candidates_ == kMostOfBatch) Write();
  }

  void Write() {
    if (all_.kernels.empty()) return;
    Program program;  // without its kernels: nothing is compiled twice for their registers
    program.target = target_;
    program.source = PrintSource(all_, target_);
    if (old_) program.source = Old(program.source);
    const absl::Status compiled = CompileSource(program, 300);
    if (absl::IsUnavailable(compiled)) std::exit(3);
    if (!compiled.ok()) {
      std::fprintf(stderr, "%s\n%s\n", program.source.c_str(), compiled.ToString().c_str());
      std::exit(1);
    }
    const std::string file = absl::StrCat(folder_, "/", old_ ? "old" : "new", written_++, ".cubin");
    std::ofstream(file, std::ios::binary) << program.binary;
    for (const std::string& line : lines_) std::printf("%s\t%s\n", file.c_str(), line.c_str());
    std::fflush(stdout);
    all_ = {};
    lines_.clear();
    candidates_ = 0;
  }

 private:
  const std::string folder_;
  const Target& target_;
  const bool old_;
  LoweredProgram all_;
  std::vector<std::string> lines_;
  int candidates_ = 0, written_ = 0;
};

int Main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int shard = std::atoi(argv[2]), shards = std::atoi(argv[3]);
  const Target target = Target::Parse("cuda -arch=sm_90 -tf32").value();
  const DeviceFacts facts = DefaultFacts(target);
  Selection selection(target, facts);
  const std::vector<testing::NamedDag> tasks = testing::BuiltinTasks(true), chains = testing::RowChains();
  const testing::NamedDag known{
      "efficientnet-b0/conv2d_1x1_s1_1x1x48_1152_bias",
      testing::Convolution({.height = 1, .width = 1, .in = 48, .out = 1152, .kernel = 1, .padding = 0})};
  if (!selection.AddKnown(known, "direct/tile.window.shared", {144, 1, 1, 1, 24, 2, 0, 2, 4, 1, 8, 1})) return 1;
  for (const auto* list : {&tasks, &chains})
    for (const testing::NamedDag& task : *list)
      if (!selection.Add(task)) return 1;
  Batch right(argv[1], target, false), wrong(argv[1], target, true);
  for (int i = shard; i < static_cast<int>(selection.candidates().size()); i += shards) {
    const Candidate& candidate = selection.candidates()[i];
    const auto lowered = Lower(*candidate.dag, candidate.schedule, target, facts);
    if (!lowered.ok()) return Selection::Fail(candidate.description, lowered.status()), 1;
    right.Add(i, candidate, *lowered);
    if (i / shards % kWrongShare == 0) wrong.Add(i, candidate, *lowered);
  }
  right.Write();
  wrong.Write();
  return 0;
}

}  // namespace
}  // namespace diapason

int main(int argc, char** argv) { return diapason::Main(argc, argv); }
