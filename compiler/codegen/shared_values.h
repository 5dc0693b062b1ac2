// Vector values that several statements of a straight run compute, so that they are printed once: a compiler would find
// them too, but has more to read and to compare.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/lower/stmt.h"

namespace diapason {

class SharedValues {
 public:
  struct Value {
    Expr e;
    std::map<int, const StmtNode*> written;  // the buffers that it loads, by what wrote them last
    int64_t lanes = 1;
    int uses = 0;
    int depth = 0;     // of the braces around the run
    std::string name;  // of its variable; empty: not printed yet
  };
  // Whether a load is no work: of a variable.
  using IsVariable = std::function<bool(const ExprNode& load)>;

  // The statements of a sequence are about to be printed: notes what occurs in at least two of its vector loops over a
  // single store whose value is computed in any case. Ends with Leave; may be nested.
  void Enter(const StmtNode& sequence, int depth, const IsVariable& is_variable);
  void Leave() { runs_.pop_back(); }
  // A statement was printed, or the body of a loop is about to be: what it stores to has other contents now.
  void Written(const StmtNode& by);

  // The value of a run around, with the contents that its buffers have now; null if it is not shared.
  Value* Find(const Expr& e, int64_t lanes);

 private:
  struct Run {
    std::unordered_multimap<size_t, Value> values;
    int depth = 0;
  };

  bool Count(const Expr& e, int64_t lanes, Run& run);
  void Walk(const Expr& e, const StmtNode& loop, const IsVariable& is_variable, Run& run);
  Value* FindIn(Run& run, size_t hash, const Expr& e, int64_t lanes);
  std::map<int, const StmtNode*> WrittenBuffers(const Expr& e) const;

  std::vector<Run> runs_;
  std::map<int, const StmtNode*> writer_;
};

}  // namespace diapason
