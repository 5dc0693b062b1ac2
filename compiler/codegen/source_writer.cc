#include "compiler/codegen/source_writer.h"

#include <algorithm>

namespace diapason {

void SourceWriter::Comment(const std::string& text) {
  std::string line = text;
  // A backslash at the end of the line would make the next one part of the comment.
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\\'; }, ' ');
  Line("// " + line);
}

}  // namespace diapason
