#include "compiler/runtime/prefetches.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compiler/runtime/address_ranges.h"

namespace diapason {
namespace {

constexpr int64_t kLeastPieceBytes = 16 << 10;
constexpr int64_t kGroupsInWindow = 8;

struct Piece {
  ArgumentPlace place;
  int64_t bytes = 0;
};

std::vector<AddressRange> WrittenBy(const std::vector<std::vector<MemoryRange>>& launches) {
  std::vector<AddressRange> written;
  for (const auto& launch : launches)
    for (const MemoryRange& range : launch)
      if (range.written) written.push_back({range.begin, range.end});
  return Merged(std::move(written));
}

// In order of the first launch that reads each.
std::vector<Piece> PiecesOf(const std::vector<std::vector<MemoryRange>>& launches) {
  const std::vector<AddressRange> written = WrittenBy(launches);
  std::set<uint64_t> known;  // by begin
  std::vector<Piece> pieces;
  for (size_t l = 0; l < launches.size(); ++l) {
    for (size_t a = 0; a < launches[l].size(); ++a) {
      const MemoryRange& range = launches[l][a];
      const auto bytes = static_cast<int64_t>(range.end - range.begin);
      if (bytes < kLeastPieceBytes || Overlaps({range.begin, range.end}, written)) continue;
      if (!known.insert(range.begin).second) continue;
      pieces.push_back({{l, a}, bytes});
    }
  }
  return pieces;
}

struct Group {
  std::vector<Piece> pieces;
  int64_t bytes = 0;
  int first_reader() const { return static_cast<int>(pieces.front().place.launch); }
  int last_reader() const { return static_cast<int>(pieces.back().place.launch); }
};

std::vector<Group> GroupsOf(const std::vector<Piece>& pieces, int64_t window) {
  std::vector<Group> groups;
  for (const Piece& piece : pieces) {
    if (piece.bytes > window / 2) continue;
    const bool full = groups.empty() || groups.back().pieces.size() == Prefetch::kMostPieces ||
                      groups.back().bytes + piece.bytes > window / kGroupsInWindow;
    if (full) groups.emplace_back();
    groups.back().pieces.push_back(piece);
    groups.back().bytes += piece.bytes;
  }
  return groups;
}

}  // namespace

std::vector<Prefetch> PlanPrefetches(const std::vector<std::vector<MemoryRange>>& launches, int64_t cache_bytes) {
  const std::vector<Piece> pieces = PiecesOf(launches);
  int64_t all = 0;
  for (const Piece& piece : pieces) all += piece.bytes;
  if (all <= cache_bytes / 2) return {};
  const int64_t window = cache_bytes / 3;
  const std::vector<Group> groups = GroupsOf(pieces, window);
  std::vector<Prefetch> prefetches;
  int after = -1;
  size_t unread = 0;  // the first group that the launches up to `after` have not read
  int64_t ahead = 0;  // bytes of the groups from there on that were asked for
  for (const Group& group : groups) {
    while (ahead > 0 && ahead + group.bytes > window) {
      after = std::max(after, groups[unread].last_reader());
      ahead -= groups[unread++].bytes;
    }
    ahead += group.bytes;
    if (after + 1 >= group.first_reader() && after >= 0) continue;  // it comes no earlier than its reader
    Prefetch& prefetch = prefetches.emplace_back();
    prefetch.after = after;
    for (const Piece& piece : group.pieces) prefetch.pieces.push_back(piece.place);
  }
  return prefetches;
}

}  // namespace diapason
