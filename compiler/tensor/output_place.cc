#include "compiler/tensor/output_place.h"

#include "absl/strings/str_cat.h"

namespace diapason {

bool OutputPlace::Holds(int64_t part_elements) const {
  if (row <= 0 || part_elements <= 0 || part_elements % row != 0) return false;
  const int64_t rows = part_elements / row;
  if (offset < 0 || elements < 0 || row > elements || offset > elements - row) return false;
  if (rows == 1) return true;
  return stride >= row && (elements - row - offset) / stride >= rows - 1;
}

std::string OutputPlace::ToString() const {
  return whole() ? "" : absl::StrCat("rows of ", row, " at ", offset, " of every ", stride);
}

std::optional<OutputPlace> Compose(const OutputPlace& outer, const OutputPlace& inner, int64_t part_elements) {
  if (outer.whole()) return inner;
  if (inner.whole()) return outer;
  const bool one_inner = inner.row == part_elements, one_outer = outer.row == inner.elements;
  if (one_outer) return OutputPlace{inner.row, inner.stride, outer.offset + inner.offset, outer.elements};
  if (one_inner && inner.offset / outer.row == (inner.offset + inner.row - 1) / outer.row)
    return OutputPlace{inner.row, inner.row, outer.At(inner.offset), outer.elements};
  if (inner.stride == outer.row && inner.offset + inner.row <= inner.stride)
    return OutputPlace{inner.row, outer.stride, outer.offset + inner.offset, outer.elements};
  return std::nullopt;
}

}  // namespace diapason
