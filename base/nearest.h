// What somebody may have meant who mistyped a name.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace diapason {

// Number of characters to insert, delete, replace or swap with their neighbour (optimal string alignment).
inline size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last(b.size() + 1), row;
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row = {i};
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t cost = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) cost = std::min(cost, before[j - 2] + 1);
      row.push_back(cost);
    }
    before = std::move(last);
    last = std::move(row);
  }
  return last.back();
}

// The known name that is nearest to `word`: one that a third of its characters, three at most, turn it into; else the
// first that begins with it, from three characters on. Empty: none is near.
inline std::string Nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = std::clamp<size_t>(word.size() / 3, 1, 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = EditDistance(word, name);
    if (distance >= least || distance >= name.size()) continue;
    least = distance;
    nearest = name;
  }
  if (!nearest.empty() || word.size() < 3) return nearest;
  const auto longer =
      std::find_if(known.begin(), known.end(), [&](const std::string& name) { return name.rfind(word, 0) == 0; });
  return longer == known.end() ? "" : *longer;
}

// "did you mean 'resnet-18'? ", or nothing.
inline std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? "" : "did you mean '" + nearest + "'? ";
}

}  // namespace diapason
