#include "compiler/build/export_templates.h"

// The bytes of `file` between two symbols.
#define DIAPASON_EMBED(name, file)                                                                            \
  __asm__(".section .rodata\n.global diapason_export_" #name "\ndiapason_export_" #name ":\n.incbin \"" file  \
          "\"\n.global diapason_export_" #name "_end\ndiapason_export_" #name "_end:\n.byte 0\n.previous\n"); \
  extern "C" const char diapason_export_##name[], diapason_export_##name##_end[]

DIAPASON_EMBED(header, DIAPASON_EXPORT "/network.h.in");
DIAPASON_EMBED(main, DIAPASON_EXPORT "/main.c.in");
DIAPASON_EMBED(cpu_header, DIAPASON_EXPORT "/cpu.h.in");
DIAPASON_EMBED(cpu_source, DIAPASON_EXPORT "/cpu.c.in");
DIAPASON_EMBED(cpu_cmake, DIAPASON_EXPORT "/cpu.cmake.in");
DIAPASON_EMBED(cuda_header, DIAPASON_EXPORT "/cuda.h.in");
DIAPASON_EMBED(cuda_source, DIAPASON_EXPORT "/cuda.c.in");
DIAPASON_EMBED(cuda_cmake, DIAPASON_EXPORT "/cuda.cmake.in");

#undef DIAPASON_EMBED
#define DIAPASON_TEXT(name) \
  std::string_view(diapason_export_##name, static_cast<size_t>(diapason_export_##name##_end - diapason_export_##name))

namespace diapason {

ExportTemplates ExportTemplatesOf(TargetKind kind) {
  if (kind == TargetKind::kCpu)
    return {DIAPASON_TEXT(header), DIAPASON_TEXT(cpu_header), DIAPASON_TEXT(cpu_source), DIAPASON_TEXT(main),
            DIAPASON_TEXT(cpu_cmake)};
  return {DIAPASON_TEXT(header), DIAPASON_TEXT(cuda_header), DIAPASON_TEXT(cuda_source), DIAPASON_TEXT(main),
          DIAPASON_TEXT(cuda_cmake)};
}

}  // namespace diapason
