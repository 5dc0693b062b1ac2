// Scalar expressions as C, OpenCL C or CUDA C text: what the three dialects share and where they differ.
//
// Values: float16 and float32 are computed in float, float64 in double, integers in the type that C's promotions give
// them, index arithmetic (int64 expressions without loads) in 64 bits, or 32 bits where the kernel allows it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "compiler/lower/stmt.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

enum class Dialect { kC, kOpenCl, kCuda };

// Helper functions that the printed text calls, by name. One set a source: only what is used is printed, in a fixed
// order.
class Helpers {
 public:
  explicit Helpers(Dialect dialect) : dialect_(dialect) {}
  // Notes that the text calls `name` and gives it back.
  const std::string& Use(const std::string& name) { return *used_.insert(name).first; }
  // Definitions that a dialect's own printer makes up: types stand before the helpers of the fixed list, functions
  // behind them, each in order of name. The first definition of a name counts.
  void DefineType(const std::string& name, const std::string& text) { types_.emplace(name, text); }
  void DefineFunction(const std::string& name, const std::string& text) { functions_.emplace(name, text); }
  // All that another text uses, too.
  void Add(const Helpers& other);
  std::string Text() const;

 private:
  Dialect dialect_;
  std::set<std::string> used_;
  std::map<std::string, std::string> types_, functions_;
};

// Names in one kernel: variables and buffers, each its own valid identifier.
class Names {
 public:
  explicit Names(Dialect dialect) : dialect_(dialect) {}
  std::string Unique(const std::string& wanted);

 private:
  Dialect dialect_;
  std::set<std::string> taken_;
};

class ExprPrinter {
 public:
  ExprPrinter(Dialect dialect, Helpers& helpers) : dialect_(dialect), helpers_(helpers), names_(dialect) {}
  virtual ~ExprPrinter() = default;

  // The function (Helpers::Use) that converts one narrow float to a float, or the other way.
  static const char* ConversionHelper(DType dtype, bool widens);

 protected:
  // Binding strength of C's operators.
  enum : int {
    kConditionalLevel = 1,
    kOrLevel,
    kAndLevel,
    kEqualityLevel,
    kRelationalLevel,
    kShiftLevel,
    kSumLevel,
    kProductLevel,
    kUnaryLevel,
    kPostfixLevel,
  };
  // Text whose operators bind at least as strongly as `precedence` (0: as it is).
  std::string Text(const Expr& e, int precedence = 0);
  // `e` as an operand of a postfix operator or a cast.
  std::string Atom(const Expr& e);
  // The element of a load as a value, e.g. "A[i]" or "half_to_float(A[i])".
  virtual std::string LoadText(const ExprNode& load) = 0;

  // Ranges of all loop variables and lets below. A variable that is bound in several places may have any of their
  // values.
  void BindVars(const Stmt& stmt);
  void ChooseIndexType(const KernelFunc& kernel);  // 32 bits on GPUs if nothing in the kernel can leave them
  const std::string& VarName(const Expr& var);
  bool is_wide(const Expr& e) const;                               // printed with a 64-bit type
  std::string IndexType() const;                                   // the type of loop variables
  std::string StorageType(DType dtype) const;                      // of an element in memory
  std::string ValueType(DType dtype) const;                        // of a value of that type in an expression
  std::string CallName(const std::string& function, DType dtype);  // of a floating point function, noted as used
  // A narrow float as it lies in memory from a float, and the other way. REQUIRES: IsNarrowFloat(dtype).
  std::string Narrowed(DType dtype, const std::string& value);
  std::string Widened(DType dtype, const std::string& bits);
  std::string FloatLiteral(double value, DType dtype);
  static std::string IntLiteral(int64_t value, Dialect dialect);

  const Dialect dialect_;
  Helpers& helpers_;
  Names names_;
  Analyzer analyzer_;

 private:
  std::string InfixText(const ExprNode& e, const char* op, int level, int precedence, bool right_associates);
  std::string DivisionText(const ExprNode& e, int precedence);
  std::string CastText(const ExprNode& e, int precedence);
  std::string CoarseText(const Expr& expr, int precedence);
  std::string CallText(const ExprNode& e);
  std::string ExtremumText(const ExprNode& e);
  bool FitsInt32(const Expr& e);
  void BindVar(const Expr& var, std::optional<Interval> range);

  bool index64_ = true;
  std::unordered_map<const ExprNode*, std::optional<Interval>> bound_;  // by all places so far; nothing: unknown in one
  std::unordered_map<const ExprNode*, std::string> vars_;
};

}  // namespace diapason
