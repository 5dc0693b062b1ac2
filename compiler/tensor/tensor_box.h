// Boxes of tensors in global memory, as tensor copies move them (Tensor Memory Accelerator; PTX ISA, "Tensors"): what a
// kernel's tensor maps are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace diapason {

// Windows over a dimension of images (im2col). Window w begins at first + w * step, outside of the image too, and has
// elements at every `apart` from there on.
struct WindowDim {
  int64_t first = 0, windows = 1, step = 1;
  int64_t elements = 1, apart = 1;
  bool operator==(const WindowDim&) const = default;
};

// Dimensions are in order from the innermost; numbers are elements.
struct TensorBox {
  static constexpr size_t kMostDimensions = 5;

  int64_t offset = 0;            // of the tensor's first element in its buffer
  std::vector<int64_t> extents;  // of the tensor; outside of them a copy reads zeros
  std::vector<int64_t> strides;  // of the tensor; the innermost is 1
  // Extents of what one copy moves; in shared memory it has no gaps. With windows, two: channels, and windows.
  std::vector<int64_t> box;
  // Bytes: how it is swizzled in shared memory (32, 64, 128; 0: not), which then is as long as a row of the box.
  int swizzle = 0;
  // Of dimensions 1 to rank - 2; empty: none. The tensor then has channels, dimensions of an image and images. A copy
  // moves an element, with its channels, of each of so many windows, which follow each other with the innermost
  // dimension first and from one image to the next.
  std::vector<WindowDim> windows{};
  bool operator==(const TensorBox&) const = default;

  int64_t rank() const { return static_cast<int64_t>(extents.size()); }
  int64_t elements() const;  // of the box
};

// Whether hardware can copy such boxes of elements of so many bytes, out of a buffer of so many elements. Total: the
// numbers may come from a peer.
bool IsCopyable(const TensorBox& box, int64_t element_bytes, int64_t buffer_elements);

// A box in the units and numbers of the driver (cuTensorMapEncodeTiled or -Im2col, CUDA 12.0 and later), which older
// headers lack.
struct DriverTensorBox {
  int type = 0, swizzle = 0;
  int64_t offset = 0;             // bytes
  std::vector<uint64_t> extents;  // elements
  std::vector<uint64_t> strides;  // bytes, of all dimensions but the innermost
  std::vector<uint32_t> box;      // elements
  // With windows, for cuTensorMapEncodeIm2col: of the image's dimensions, and steps of all.
  std::vector<int> first, last;  // element of the first window, and of the last one from the image's last element
  std::vector<uint32_t> steps;
};
// Elements are taken for unsigned integers: what is copied is not looked at, and zeros are zeros of all types.
DriverTensorBox ForDriver(const TensorBox& box, int element_bytes);

}  // namespace diapason
