// Scalar expressions of a C kernel, and accesses to its buffers.
#pragma once

#include <map>
#include <string>

#include "compiler/codegen/buffer_names.h"
#include "compiler/codegen/expr_printer.h"
#include "compiler/codegen/slots.h"
#include "compiler/lower/stmt.h"

namespace diapason {

class CAccessPrinter : public ExprPrinter {
 public:
  explicit CAccessPrinter(Helpers& helpers) : ExprPrinter(Dialect::kC, helpers) {}

  Analyzer& analyzer() { return analyzer_; }
  using ExprPrinter::BindVars;
  using ExprPrinter::CallName;
  using ExprPrinter::kOrLevel;
  using ExprPrinter::Narrowed;
  using ExprPrinter::StorageType;
  using ExprPrinter::Text;
  using ExprPrinter::ValueType;
  using ExprPrinter::VarName;
  std::string UniqueName(const std::string& wanted) { return names_.Unique(wanted); }

  // From here on the buffer is known.
  void Declare(const BufferDecl& decl) { buffers_.Declare(decl, names_); }
  const BufferDecl& decl(int buffer) const { return buffers_.decl(buffer); }
  const std::string& NameOf(int buffer) const { return buffers_.name(buffer); }
  // Between these the pieces of a local buffer are variables.
  void BeginSlots(int buffer, const Slots& slots) { slots_[buffer] = slots; }
  void EndSlots(int buffer) { slots_.erase(buffer); }
  bool HasSlots(int buffer) const { return slots_.count(buffer) != 0; }
  // The variable of the piece that begins there.
  std::string SlotName(int buffer, int64_t start) const { return NameOf(buffer) + "_" + std::to_string(start); }

  // Whether elements are narrow floats that are converted where they lie.
  bool IsNarrowInMemory(int buffer) const;
  // An element as it is stored: what is assigned to.
  std::string ElementText(int buffer, const Expr& index);
  // A store of one element, with its semicolon.
  std::string StoreText(const StmtNode& store);
  // A pointer to an element.
  std::string AddressText(int buffer, const Expr& index);

 private:
  std::string LoadText(const ExprNode& load) override;

  BufferNames buffers_;
  std::map<int, Slots> slots_;
};

}  // namespace diapason
