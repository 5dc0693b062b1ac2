#include "service/find_guilty.h"

#include "base/check.h"

namespace diapason {
namespace {

class Search {
 public:
  Search(int count, const IsWrong& is_wrong, int confirmations)
      : count_(count), confirmations_(confirmations), is_wrong_(is_wrong), in_place_(count, true) {}

  absl::StatusOr<std::vector<int>> Run() {
    std::vector<int> guilty;
    while (true) {
      ASSIGN_OR_RETURN(const bool wrong, EverWrong(in_place_));
      if (!wrong) return guilty;
      if (guilty.empty()) {
        ASSIGN_OR_RETURN(const bool base, EverWrong(std::vector<bool>(count_, false)));
        if (base) return absl::FailedPreconditionError("wrong with every part replaced");
      }
      ASSIGN_OR_RETURN(const int found, FindOne());
      in_place_[found] = false;
      guilty.push_back(found);
    }
  }

 private:
  // Asked once more for each confirmation while the answer is "right".
  absl::StatusOr<bool> EverWrong(const std::vector<bool>& in_place) {
    for (int i = 0; i <= confirmations_; ++i) {
      ASSIGN_OR_RETURN(const bool wrong, is_wrong_(in_place));
      if (wrong) return true;
    }
    return false;
  }

  // Of those in place, the first `count` ones.
  std::vector<bool> Prefix(const std::vector<int>& parts, size_t count) const {
    std::vector<bool> in_place(count_, false);
    for (size_t i = 0; i < count; ++i) in_place[parts[i]] = true;
    return in_place;
  }

  // REQUIRES: the whole is wrong with in_place_, and right with none in place.
  absl::StatusOr<int> FindOne() {
    std::vector<int> parts;
    for (int i = 0; i < count_; ++i)
      if (in_place_[i]) parts.push_back(i);
    DIAPASON_CHECK(!parts.empty());
    size_t right = 0, wrong = parts.size();  // lengths of prefixes; the wrong one was seen to be wrong
    while (true) {
      while (wrong - right > 1) {
        const size_t middle = right + (wrong - right) / 2;
        ASSIGN_OR_RETURN(const bool seen, is_wrong_(Prefix(parts, middle)));
        (seen ? wrong : right) = middle;
      }
      if (wrong == 1) return parts[0];
      std::vector<bool> alone(count_, false);
      alone[parts[wrong - 1]] = true;
      ASSIGN_OR_RETURN(const bool by_itself, is_wrong_(alone));
      if (by_itself) return parts[wrong - 1];
      ASSIGN_OR_RETURN(const bool earlier, EverWrong(Prefix(parts, wrong - 1)));
      if (!earlier) return parts[wrong - 1];
      --wrong;  // an answer of "right" was luck
      right = 0;
    }
  }

  const int count_, confirmations_;
  const IsWrong& is_wrong_;
  std::vector<bool> in_place_;
};

}  // namespace

absl::StatusOr<std::vector<int>> FindGuilty(int count, const IsWrong& is_wrong, int confirmations) {
  DIAPASON_CHECK(count >= 0 && confirmations >= 0);
  return Search(count, is_wrong, confirmations).Run();
}

}  // namespace diapason
