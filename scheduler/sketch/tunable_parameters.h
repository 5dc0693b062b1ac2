// The tunable parameters of a sketch: the numbers that its steps leave open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/schedule/step.h"

namespace diapason {

// A tunable parameter: one number left open. Candidate values in ascending order; limits of the target and padding
// narrow them further (scheduler/sketch/sketch_space.h).
struct TunableParameter {
  enum class Kind : uint8_t {
    kTile,    // factor of a split
    kOption,  // unrolling, padding, vector width, attach point: every value is structurally valid
  };
  std::string name;
  Kind kind = Kind::kTile;
  std::vector<int32_t> values;
  int32_t preferred = 1;         // where clamping and the default start from
  std::optional<int32_t> prior;  // its value in the sketch's prior (TunableParameters::Prior), where that says one
};

// The tiling of one loop of extent `extent` by the product of some parameters and a constant: what the tiles cover
// beyond the extent is bounded (kMaxPadding).
struct Tiling {
  int64_t extent;
  Factor tile;
};

// Tiles may cover at most this many times the extent.
inline constexpr double kMaxPadding = 1.35;

// Parameters are numbered as they are added; a Factor names them by their number.
class TunableParameters {
 public:
  const std::vector<TunableParameter>& all() const { return parameters_; }
  // The first error: a parameter without any value.
  const absl::Status& status() const { return status_; }

  // Adds one over a tile of a loop of that extent: its divisors, powers of two and 3*2^k, none above `limit`. A number,
  // and no parameter, where there is only one value.
  Factor Tile(const std::string& name, int64_t extent, int32_t limit, int32_t preferred = 1);
  // The same, and what divides the extent most evenly: the least tile of each number of tiles.
  Factor EvenTile(const std::string& name, int64_t extent, int32_t limit, int32_t preferred = 1);
  // Adds one of these values, or a number as above.
  Factor Option(const std::string& name, std::vector<int32_t> values, int32_t preferred);
  // Takes values below `least` from the parameter of a factor, which keeps others.
  void AtLeast(const Factor& factor, int32_t least);
  // Declares a part of the sketch's prior: a configuration, known from measurements of similar shapes, that is measured
  // among the first and is the sketch's default. The parameter of `factor` takes the least of its values that is not
  // below `wanted`, else the greatest; parameters that nothing is declared for take their preferred value. Without a
  // parameter in `factor` there is nothing to choose.
  void Prior(const Factor& factor, int64_t wanted);
  void DropPrior();
  // Bounds what the tiles of a loop cover beyond its extent.
  void BoundPadding(int64_t extent, const Factor& tile) { tilings_.push_back({extent, tile}); }
  const std::vector<Tiling>& tilings() const { return tilings_; }

 private:
  Factor Add(const std::string& name, TunableParameter::Kind kind, std::vector<int32_t> values, int32_t preferred);

  std::vector<TunableParameter> parameters_;
  std::vector<Tiling> tilings_;
  absl::Status status_;
};

// Values for a tile of a loop: divisors of the extent, powers of two and 3*2^k up to min(extent rounded up, limit).
std::vector<int32_t> TileValues(int64_t extent, int32_t limit);

}  // namespace diapason
