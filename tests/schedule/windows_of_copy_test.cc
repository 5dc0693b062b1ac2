#include "compiler/schedule/windows_of_copy.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {
namespace {

struct ConvOfWindows {
  std::vector<int64_t> image = {8, 6};  // outermost first
  int64_t batch = 4, channels = 32, kernel = 3, step = 1, apart = 1, border = 1;
  int64_t windows(size_t d) const { return (image[d] + 2 * border - (kernel - 1) * apart - 1) / step + 1; }
};

// Rows of windows and columns of their elements, as rewrites write them.
std::optional<TensorBox> WindowsOf(const ConvOfWindows& c) {
  DagBuilder b;
  std::vector<int64_t> shape = {c.batch};
  shape.insert(shape.end(), c.image.begin(), c.image.end());
  shape.push_back(c.channels);
  int64_t rows = c.batch, columns = c.channels;
  for (size_t d = 0; d < c.image.size(); ++d) {
    rows *= c.windows(d);
    columns *= c.kernel;
  }
  const int x = b.Placeholder("x", shape, DType::kFloat16);
  const int y = b.Compute("rows", {rows, columns}, [&](const DagBuilder::Vars& i) {
    std::vector<Expr> place(shape.size());
    Expr row = i[0], column = FloorDiv(i[1], c.channels), inside = nullptr;
    place.back() = FloorMod(i[1], c.channels);
    for (size_t d = c.image.size(); d-- > 0;) {
      const Expr begin = Mul(FloorMod(row, c.windows(d)), IntImm(c.step));
      const Expr element = Mul(FloorMod(column, c.kernel), IntImm(c.apart));
      place[1 + d] = Add(Add(begin, element), IntImm(-c.border));
      row = FloorDiv(row, c.windows(d));
      column = FloorDiv(column, c.kernel);
      const Expr both = And(Le(IntImm(0), place[1 + d]), Lt(place[1 + d], IntImm(c.image[d])));
      inside = inside ? And(inside, both) : both;
    }
    place[0] = row;
    return c.border > 0 ? Select(inside, b.At(x, place), FloatImm(0, DType::kFloat16)) : b.At(x, place);
  });
  return WindowsOfCopy(State(b.Build({y}).value()), y);
}

TEST(WindowsOfCopy, FindsWhatConvolutionsRead) {
  for (const auto& image : std::vector<std::vector<int64_t>>{{9}, {8, 6}, {7, 6, 5}}) {
    for (const ConvOfWindows& c : {ConvOfWindows{.image = image},
                                   {.image = image, .step = 2},
                                   {.image = image, .apart = 2, .border = 2},
                                   {.image = image, .batch = 1},
                                   {.image = image, .kernel = 1, .step = 2, .border = 0},
                                   {.image = image, .kernel = 2, .border = 0}}) {
      SCOPED_TRACE(absl::StrCat(image.size(), " dimensions, kernel ", c.kernel, ", step ", c.step, ", apart ", c.apart,
                                ", border ", c.border, ", batch ", c.batch));
      const std::optional<TensorBox> box = WindowsOf(c);
      ASSERT_TRUE(box.has_value());
      EXPECT_EQ(box->extents.front(), c.channels);
      EXPECT_EQ(box->extents.back(), c.batch);
      ASSERT_EQ(box->windows.size(), image.size());
      for (size_t d = 0; d < image.size(); ++d) {
        const WindowDim& dim = box->windows[image.size() - 1 - d];
        EXPECT_EQ(box->extents[image.size() - d], image[d]);
        EXPECT_EQ(dim.first, -c.border);
        EXPECT_EQ(dim.windows, c.windows(d));
        EXPECT_EQ(dim.step, c.windows(d) > 1 ? c.step : 1);
        EXPECT_EQ(dim.elements, c.kernel);
        EXPECT_EQ(dim.apart, c.kernel > 1 ? c.apart : 1);
      }
    }
  }
}

// What is zero inside of the image too, or not zero outside of it.
TEST(WindowsOfCopy, OthersAreLeftToThreads) {
  DagBuilder b;
  const int x = b.Placeholder("x", {2, 6, 32}, DType::kFloat16);
  const auto with = [&](const std::function<Expr(const DagBuilder::Vars&)>& value) {
    DagBuilder copy = b;
    const int y = copy.Compute("rows", {12, 96}, value);
    return WindowsOfCopy(State(copy.Build({y}).value()), y);
  };
  const auto place = [](const DagBuilder::Vars& i) {
    return Add(FloorMod(i[0], 6), Sub(FloorDiv(i[1], 32), IntImm(1)));
  };
  const auto load = [&](const DagBuilder::Vars& i) {
    return b.At(x, {FloorDiv(i[0], 6), place(i), FloorMod(i[1], 32)});
  };
  const auto half = [](double value) { return FloatImm(value, DType::kFloat16); };
  const auto inside = [&](const DagBuilder::Vars& i, int64_t from, int64_t to) {
    return And(Le(IntImm(from), place(i)), Lt(place(i), IntImm(to)));
  };
  EXPECT_TRUE(with([&](auto& i) { return Select(inside(i, 0, 6), load(i), half(0)); }));
  EXPECT_FALSE(with([&](auto& i) { return Select(inside(i, 0, 6), load(i), half(1)); })) << "not zero outside";
  EXPECT_FALSE(with([&](auto& i) { return Select(inside(i, 0, 6), load(i), half(-0.0)); })) << "-0 outside";
  EXPECT_FALSE(with([&](auto& i) { return Select(inside(i, 1, 6), load(i), half(0)); })) << "zero inside";
  EXPECT_FALSE(with([&](auto& i) { return Select(inside(i, 0, 5), load(i), half(0)); })) << "zero inside";
  EXPECT_FALSE(with([&](auto& i) { return Select(And(inside(i, 0, 6), Lt(i[0], IntImm(11))), load(i), half(0)); }))
      << "the last row is zero";
  EXPECT_FALSE(with([&](auto& i) { return Select(Or(inside(i, 0, 6), Lt(i[0], IntImm(2))), load(i), half(0)); }))
      << "another kind of condition";
}

TEST(WindowsOfCopy, WindowsGoOneWay) {
  DagBuilder b;
  const int x = b.Placeholder("x", {2, 9, 32}, DType::kFloat16);
  const auto with = [&](const std::function<std::vector<Expr>(const DagBuilder::Vars&)>& place) {
    DagBuilder copy = b;
    const int y = copy.Compute("rows", {8, 96}, [&](const DagBuilder::Vars& i) { return copy.At(x, place(i)); });
    return WindowsOfCopy(State(copy.Build({y}).value()), y);
  };
  EXPECT_TRUE(with([](auto& i) {
    return std::vector<Expr>{FloorDiv(i[0], 4), Add(FloorMod(i[0], 4), FloorDiv(i[1], 32)), FloorMod(i[1], 32)};
  }));
  EXPECT_FALSE(with([](auto& i) {
    return std::vector<Expr>{FloorDiv(i[0], 4), Sub(Add(IntImm(4), FloorDiv(i[1], 32)), FloorMod(i[0], 4)),
                             FloorMod(i[1], 32)};
  })) << "windows that go backwards";
  EXPECT_FALSE(with([](auto& i) {
    return std::vector<Expr>{FloorDiv(i[0], 4), Add(FloorMod(i[0], 4), FloorDiv(i[1], 32)),
                             Sub(IntImm(31), FloorMod(i[1], 32))};
  })) << "channels backwards";
  EXPECT_FALSE(with([](auto& i) {
    return std::vector<Expr>{FloorMod(i[0], 2), Add(FloorDiv(i[0], 2), FloorDiv(i[1], 32)), FloorMod(i[1], 32)};
  })) << "images innermost";
  EXPECT_FALSE(with([](auto& i) {
    return std::vector<Expr>{FloorDiv(i[0], 4), Add(FloorMod(i[0], 4), FloorMod(i[1], 3)), FloorDiv(i[1], 3)};
  })) << "channels outermost";
}

}  // namespace
}  // namespace diapason
