// The buffers of a kernel that is printed: declarations and names by id.
#pragma once

#include <map>
#include <string>

#include "compiler/codegen/expr_printer.h"
#include "compiler/lower/stmt.h"

namespace diapason {

class BufferNames {
 public:
  // The buffer is declared like this from here on; a name that it has stays its own.
  void Declare(const BufferDecl& decl, Names& names) {
    buffers_[decl.id] = decl;
    if (names_.count(decl.id) == 0) names_[decl.id] = names.Unique(decl.name);
  }

  // REQUIRES: the buffer was declared.
  const BufferDecl& decl(int buffer) const { return buffers_.at(buffer); }
  const std::string& name(int buffer) const { return names_.at(buffer); }

 private:
  std::map<int, BufferDecl> buffers_;
  std::map<int, std::string> names_;
};

}  // namespace diapason
