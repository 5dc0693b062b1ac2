#include "compiler/codegen/c/access_printer.h"

namespace diapason {

bool CAccessPrinter::IsNarrowInMemory(int buffer) const {
  return IsNarrowFloat(decl(buffer).dtype) && decl(buffer).scope == Scope::kGlobal;
}

std::string CAccessPrinter::ElementText(int buffer, const Expr& index) {
  const auto slots = slots_.find(buffer);
  if (slots == slots_.end()) return NameOf(buffer) + "[" + Text(index) + "]";
  const int64_t at = IntValue(analyzer_.Simplify(index));
  const auto slot = SlotOf(slots->second, at);
  const std::string name = SlotName(buffer, slot->first);
  return slot->second == 1 ? name : name + "[" + std::to_string(at - slot->first) + "]";
}

std::string CAccessPrinter::LoadText(const ExprNode& load) {
  const std::string element = ElementText(load.buffer, load.args[0]);
  return IsNarrowInMemory(load.buffer) ? Widened(decl(load.buffer).dtype, element) : element;
}

std::string CAccessPrinter::StoreText(const StmtNode& store) {
  const std::string target = ElementText(store.buffer, store.index);
  const DType dtype = decl(store.buffer).dtype;
  std::string value = Text(store.value);
  if (IsNarrowInMemory(store.buffer)) value = Narrowed(dtype, value);
  if (dtype == DType::kBool && store.value->dtype != DType::kBool) value = "(" + value + ") != 0";
  return target + " = " + value + ";";
}

std::string CAccessPrinter::AddressText(int buffer, const Expr& index) {
  return NameOf(buffer) + (IsInt(index, 0) ? "" : " + " + Text(index, kSumLevel));
}

}  // namespace diapason
