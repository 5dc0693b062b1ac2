// Vector loops in C: statements of a kVectorize loop as operations on GCC vectors.
#pragma once

#include <string>
#include <vector>

#include "compiler/codegen/expr_printer.h"
#include "compiler/codegen/passes.h"
#include "compiler/codegen/shared_values.h"
#include "compiler/codegen/slots.h"

namespace diapason {

class CVectorPrinter : public ExprPrinter {
 protected:
  explicit CVectorPrinter(Helpers& helpers) : ExprPrinter(Dialect::kC, helpers) {}

  virtual void PrintStmt(const Stmt& stmt) = 0;
  // Statements one after the other: vector values that several of them compute become variables.
  void PrintSequence(const StmtNode& sequence);

  // A loop whose lanes are a power of two that fits a vector. What has no vector form is done lane by lane: always
  // correct, and as fast as a scalar loop.
  void PrintVectorLoop(const StmtNode& loop);

  // A loop over the bytes of dot products (HoldsByteDots), as instructions.
  void PrintByteDots(const Expr& byte, const Stmt& body);

  // Text of the element type in vector names ("f32"); null where values of the type are never held in vectors.
  static const char* VectorElementOf(DType dtype);
  // "f32x16", with its definition.
  std::string VectorType(DType dtype, int64_t lanes);

  std::string StoreText(const StmtNode& store);
  std::string LoadText(const ExprNode& load) override;
  void PrintComment(const std::string& text);

  void Declare(const BufferDecl& decl);
  const std::string& NameOf(int buffer) const { return buffer_names_.at(buffer); }
  std::string SlotName(int buffer, int64_t start) const { return NameOf(buffer) + "_" + std::to_string(start); }

  void Line(const std::string& text);
  void Open(const std::string& head);
  void Close();
  void Block(const std::string& head, const Stmt& body);

  std::map<int, Slots> slots_;  // of the local buffers that are variables
  SharedValues shared_;
  std::string out_;
  int depth_ = 0;

 private:
  // What of a condition holds for all lanes at once. Sufficient, not necessary: both may be false.
  struct AllOrNone {
    Expr all, none;
  };

  void PrintVectorStmt(const Stmt& stmt);
  void PrintVectorIf(const StmtNode& s);
  void PrintVectorStore(const StmtNode& store);
  bool HasByteForm(const Expr& e);
  void PrintByteStore(const StmtNode& store, const Stride& stride);
  std::string IntegerLanes(const Expr& e);
  void DefineByteTypes();
  void WriteVector(const StmtNode& store, const Stride& stride, const std::string& value);
  void PrintSplitStore(const StmtNode& store, const Expr& condition);
  void PrintLaneByLane(const Stmt& stmt);
  bool TouchesSlots(const Stmt& stmt) const;

  bool UsesLane(const Expr& e) const { return UsesVar(e, lane_.get()); }
  Expr AtLane(const Expr& e, int64_t i);
  std::optional<AllOrNone> DecideLanes(const Expr& condition);
  Expr FindLaneCondition(const Expr& value);

  // The variable of a shared value, or the text of the expression.
  std::string VectorText(const Expr& e);
  std::string UnsharedText(const Expr& e);
  std::string Operand(const Expr& e);
  std::string VectorInfix(const Expr& e, const char* op);
  std::string VectorLoad(const Expr& e);
  std::string VectorSelect(const Expr& e);
  std::string VectorCast(const Expr& e);
  std::string VectorCall(const Expr& e);
  std::string VectorExtremum(const Expr& e);
  std::string PerLane(const Expr& e);
  std::string Broadcast(const std::string& scalar, DType dtype);
  // A vector of all ones or zeros a lane; empty when the condition has no such form for lanes of `width` bytes.
  std::string MaskText(const Expr& condition, int width);
  bool SafeOnAllLanes(const Expr& branch, const Expr& condition) const;
  std::string Pointer(int buffer, const Expr& base);
  std::string MaskType(int bytes);
  // Name of the function that loads or stores lanes of a narrow float.
  std::string NarrowAccess(DType dtype, bool load);
  // Where a load of neighbouring integers of 8 bits begins; null where it is none.
  Expr BytesFrom(const Expr& load);
  // Neighbouring integers of 8 bits as a vector of int; empty where it is no load of such.
  std::string ByteLoad(const Expr& load);

  Expr lane_;            // of the vector loop that is being printed
  int conditional_ = 0;  // branches around the expression that is printed
  int64_t lanes_ = 1;
  int splits_ = 0;
  std::map<int, BufferDecl> buffers_;
  std::map<int, std::string> buffer_names_;
};

}  // namespace diapason
