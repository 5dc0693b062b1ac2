// Where a kernel that starts early waits for the one in front (programmatic dependent launch, lower/early_start.h).
#pragma once

#include <set>

#include "compiler/lower/stmt.h"

namespace diapason {

// The wait stands before the first statement that touches what the kernel in front may, among those that every thread
// runs once: so every thread waits, and copies of constants, as well as barriers, come before it. Roles that wait by
// themselves (StmtNode::role) have a wait each.
class LaunchWait {
 public:
  // Without an early start nothing is waited for.
  LaunchWait(const KernelFunc& kernel, bool starts_early);

  // Whether another kernel may use the buffer at the same time, before the wait.
  bool IsAwaited(int buffer) const { return awaited_.count(buffer) != 0; }
  // Whether the wait is still to be printed, and stands before this statement. Statements are asked about in their
  // order, each before those inside it.
  bool StandsBefore(const Stmt& stmt) const;
  bool pending() const { return pending_; }
  void SetPrinted() { pending_ = false; }

 private:
  bool Touches(const Expr& e) const;
  bool Touches(const Stmt& stmt) const;

  std::set<int> awaited_;
  bool pending_;
};

}  // namespace diapason
