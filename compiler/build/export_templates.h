// The texts of an exported network (compiler/build/export), as a part of the program, so that an installed one needs no
// others.
#pragma once

#include <string_view>

#include "compiler/tensor/target.h"

namespace diapason {

// "@NAME@" and the like stand for what export_kernels.cc knows.
struct ExportTemplates {
  std::string_view header, declarations;  // the latter: of the target, a part of the former
  std::string_view source, main, cmake;
};

// REQUIRES: not opencl.
ExportTemplates ExportTemplatesOf(TargetKind kind);

}  // namespace diapason
