// Operators on elements, with numpy broadcasting: those that differ from ours in name and attributes only, and what is
// composed of a few of ours.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// The name of ours for a node of the table.
const char* OurName(const std::string& op) {
  static const std::map<std::string, const char*>& names = *new std::map<std::string, const char*>{
      {"Abs", "abs"},
      {"Acos", "acos"},
      {"Acosh", "acosh"},
      {"And", "and"},
      {"Asin", "asin"},
      {"Asinh", "asinh"},
      {"Atan", "atan"},
      {"Atanh", "atanh"},
      {"BitwiseAnd", "bitwise_and"},
      {"BitwiseNot", "bitwise_not"},
      {"BitwiseOr", "bitwise_or"},
      {"BitwiseXor", "bitwise_xor"},
      {"Celu", "celu"},
      {"Cos", "cos"},
      {"Cosh", "cosh"},
      {"Equal", "equal"},
      {"Greater", "less"},
      {"GreaterOrEqual", "less_equal"},
      {"IsNaN", "is_nan"},
      {"Less", "less"},
      {"LessOrEqual", "less_equal"},
      {"Mish", "mish"},
      {"Not", "not"},
      {"Or", "or"},
      {"Selu", "selu"},
      {"Shrink", "shrink"},
      {"Sign", "sign"},
      {"Sin", "sin"},
      {"Sinh", "sinh"},
      {"Softsign", "softsign"},
      {"Swish", "swish"},
      {"Tan", "tan"},
      {"ThresholdedRelu", "thresholded_relu"},
      {"Xor", "xor"},
      {"Add", "add"},
      {"Ceil", "ceil"},
      {"Div", "div"},
      {"Elu", "elu"},
      {"Erf", "erf"},
      {"Exp", "exp"},
      {"Floor", "floor"},
      {"HardSigmoid", "hard_sigmoid"},
      {"HardSwish", "hard_swish"},
      {"Identity", "identity"},
      {"LeakyRelu", "leaky_relu"},
      {"Log", "log"},
      {"Max", "maximum"},
      {"Mean", "add"},
      {"Min", "minimum"},
      {"Mul", "mul"},
      {"Neg", "neg"},
      {"Reciprocal", "reciprocal"},
      {"Relu", "relu"},
      {"Round", "round"},
      {"Sigmoid", "sigmoid"},
      {"Softplus", "softplus"},
      {"Sqrt", "sqrt"},
      {"Sub", "sub"},
      {"Sum", "add"},
      {"Tanh", "tanh"},
  };
  return names.at(op);
}

absl::Status ImportUnary(NodeImporter& node) {
  if (node.node().op == "Identity" && node.HasInput(0)) {
    ASSIGN_OR_RETURN(const ImportValue any, node.AnyInput(0));
    Composer c(node);
    if (!any->is_tensor()) return c.Finish(any);
  }
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  Attributes attributes;
  for (const char* name : {"alpha", "beta", "gamma", "lambd", "bias"}) {
    if (node.Has(name)) attributes.Set(name, node.Float(name, 0));
  }
  // An identity of a constant is one, of whatever size.
  if (node.node().op == "Identity" && x->value) {
    node.Set(0, std::make_shared<ImportedTensor>(*x));
    return absl::OkStatus();
  }
  return node.Emit(OurName(node.node().op), {x}, std::move(attributes));
}

absl::Status ImportBinary(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue a, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue b, node.Input(1));
  return node.Emit(OurName(node.node().op), {a, b});
}

// a > b is b < a.
absl::Status ImportGreater(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue a, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue b, node.Input(1));
  return node.Emit(OurName(node.node().op), {b, a});
}

absl::Status ImportMod(NodeImporter& node) {
  Composer c(node);
  bool truncated = node.Int("fmod", 0) != 0;
  ImportValue a = c.Input(0), b = c.Input(1);
  if (!truncated && IsFloat(a->type.dtype) && node.opset() < 28)
    c.Fail(absl::InvalidArgumentError("floats need fmod=1"));
  return c.Finish(c.Op(truncated ? "fmod" : "mod", {a, b}));
}

absl::Status ImportCastLike(NodeImporter& node) {
  Composer c(node);
  node.Ignore({"saturate", "round_mode"});  // of floats of 8 bits, which NodeImporter rounds
  ImportValue x = c.Input(0), like = c.Input(1);
  return c.Finish(c.Cast(x, like->type.dtype));
}

absl::Status ImportIsInf(NodeImporter& node) {
  Composer c(node);
  return c.Finish(c.Op("is_inf", {c.Input(0)},
                       {{"negative", node.Int("detect_negative", 1)}, {"positive", node.Int("detect_positive", 1)}}));
}

absl::Status ImportGelu(NodeImporter& node) {
  Composer c(node);
  std::string form = node.String("approximate", "none");
  if (form != "none" && form != "tanh") {
    return absl::InvalidArgumentError(absl::StrCat("approximate must be none or tanh, not '", form, "'"));
  }
  return c.Finish(c.Op(form == "tanh" ? "gelu_tanh" : "gelu", {c.Input(0)}));
}

absl::Status ImportDiv(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue b, node.Input(1));
  bool known_integers = b->value && !IsFloat(b->type.dtype);
  for (int64_t i = 0, n = known_integers ? b->type.elements() : 0; i < n; ++i) {
    if (b->value->int_at(i) == 0) return absl::InvalidArgumentError("it divides integers by zero");
  }
  return ImportBinary(node);
}

// Max, Min, Sum, Mean of any number of tensors.
absl::Status ImportVariadic(NodeImporter& node) {
  ASSIGN_OR_RETURN(std::vector<ImportValue> inputs, node.Inputs());
  const char* op = OurName(node.node().op);
  if (inputs.size() == 1) return node.Emit("identity", inputs);
  ImportValue result = inputs[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    ASSIGN_OR_RETURN(result, node.Add(op, {result, inputs[i]}));
  }
  if (node.node().op == "Mean") {
    Array share(result->type.dtype, {});
    share.set(0, 1.0 / static_cast<double>(inputs.size()));
    ASSIGN_OR_RETURN(result, node.Add("mul", {result, KnownValue(std::move(share), node.node().name)}));
  }
  node.Set(0, std::move(result));
  return absl::OkStatus();
}

// A power of an integer base, in float64. Library functions are off by some units in the last place (CUDA's pow by up
// to two), so a result that close to an integer is one: the cast that follows truncates.
ImportValue ExactIntegers(Composer& c, const ImportValue& power) {
  constexpr double kClose = 1e-12;  // relative
  const ImportValue integer = c.Op("round", {power});
  const ImportValue distance = c.Op("abs", {c.Sub(power, integer)});
  const ImportValue allowed = c.Mul(c.Op("abs", {integer}), c.Scalar(kClose, integer));
  return c.Op("where", {c.Op("less_equal", {distance, allowed}), integer, power});
}

// From opset 12 on base and exponent may have different types, integers too; the result has that of the base.
absl::Status ImportPow(NodeImporter& node) {
  Composer c(node);
  const ImportValue base = c.Input(0), exponent = c.Input(1);
  RETURN_IF_ERROR(c.status());
  const DType type = base->type.dtype, work = IsFloat(type) ? type : DType::kFloat64;
  ImportValue power = c.Op("pow", {c.Cast(base, work), c.Cast(exponent, work)});
  if (!IsFloat(type)) power = ExactIntegers(c, power);
  return c.Finish(c.Cast(power, type));
}

// The slope counts for negative x alone, so that one of NaN or infinity changes no other.
absl::Status ImportPRelu(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue slope, node.Input(1));
  ImportValue zero = KnownValue(Array(x->type.dtype, {}), node.node().name);
  ASSIGN_OR_RETURN(ImportValue negative, node.Add("less", {x, zero}));
  ASSIGN_OR_RETURN(ImportValue scaled, node.Add("mul", {x, slope}));
  return node.Emit("where", {negative, scaled, x});
}

// By bits: to the left or to the right.
absl::Status ImportBitShift(NodeImporter& node) {
  Composer c(node);
  const std::string direction = node.String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    return absl::InvalidArgumentError(absl::StrCat("direction must be LEFT or RIGHT, not '", direction, "'"));
  }
  return c.Finish(c.Op(direction == "LEFT" ? "shift_left" : "shift_right", {c.Input(0), c.Input(1)}));
}

absl::Status ImportSwiGlu(NodeImporter& node) {
  Composer c(node);
  ImportValue a = c.Input(0), b = c.Input(1);
  if (!(a->type == b->type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("inputs must be alike, not ", a->type.ToString(), " and ", b->type.ToString()));
  }
  return c.Finish(c.Mul(c.Op("swish", {a}, {{"alpha", node.Float("alpha", 1)}}), b));
}

absl::Status ImportWhere(NodeImporter& node) {
  ASSIGN_OR_RETURN(std::vector<ImportValue> inputs, node.Inputs());
  if (inputs.size() != 3) return absl::InvalidArgumentError("it must have 3 inputs");
  return node.Emit("where", inputs);
}

}  // namespace

std::vector<OnnxRule> Elementwise() {
  std::vector<OnnxRule> rules = {{"BitShift", ImportBitShift},
                                 {"SwiGLU", ImportSwiGlu},
                                 {"CastLike", ImportCastLike},
                                 {"Div", ImportDiv},
                                 {"Gelu", ImportGelu},
                                 {"Greater", ImportGreater},
                                 {"GreaterOrEqual", ImportGreater},
                                 {"IsInf", ImportIsInf},
                                 {"Max", ImportVariadic},
                                 {"Mean", ImportVariadic},
                                 {"Min", ImportVariadic},
                                 {"Mod", ImportMod},
                                 {"Pow", ImportPow},
                                 {"PRelu", ImportPRelu},
                                 {"Sum", ImportVariadic},
                                 {"Where", ImportWhere}};
  for (const char* op : {"Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Less", "LessOrEqual", "Mul",
                         "Or", "Sub", "Xor"}) {
    rules.push_back({op, ImportBinary});
  }
  for (const char* op : {"Abs",
                         "Acos",
                         "Acosh",
                         "Asin",
                         "Asinh",
                         "Atan",
                         "Atanh",
                         "BitwiseNot",
                         "Ceil",
                         "Celu",
                         "Cos",
                         "Cosh",
                         "Elu",
                         "Erf",
                         "Exp",
                         "Floor",
                         "HardSigmoid",
                         "HardSwish",
                         "Identity",
                         "IsNaN",
                         "LeakyRelu",
                         "Log",
                         "Mish",
                         "Neg",
                         "Not",
                         "Reciprocal",
                         "Relu",
                         "Round",
                         "Selu",
                         "Shrink",
                         "Sigmoid",
                         "Sign",
                         "Sin",
                         "Sinh",
                         "Softplus",
                         "Softsign",
                         "Sqrt",
                         "Swish",
                         "Tan",
                         "Tanh",
                         "ThresholdedRelu"}) {
    rules.push_back({op, ImportUnary});
  }
  return rules;
}

}  // namespace diapason::onnx_rules
