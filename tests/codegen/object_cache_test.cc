#include "compiler/codegen/object_cache.h"

#include <gtest/gtest.h>

#include <thread>

namespace diapason {
namespace {

using State = ObjectCache::State;

ObjectCache::Object Bytes(const std::string& text) { return std::make_shared<const std::string>(text); }

TEST(ObjectCache, AnObjectIsMadeOnce) {
  ObjectCache cache(1000);
  EXPECT_EQ(cache.Ask("a").state, State::kClaimed);
  EXPECT_EQ(cache.Ask("a").state, State::kBusy);
  cache.Put("a", Bytes("object of a"));
  const ObjectCache::Answer answer = cache.Ask("a");
  EXPECT_EQ(answer.state, State::kKnown);
  EXPECT_EQ(*answer.object, "object of a");
  EXPECT_EQ(cache.Ask("b").state, State::kClaimed);
}

TEST(ObjectCache, WhatWasGivenUpIsClaimedAgain) {
  ObjectCache cache(1000);
  EXPECT_EQ(cache.Ask("a").state, State::kClaimed);
  cache.GiveUp("a");
  EXPECT_EQ(cache.Wait("a"), nullptr);
  EXPECT_EQ(cache.Ask("a").state, State::kClaimed);
}

TEST(ObjectCache, OthersWaitForTheObject) {
  ObjectCache cache(1000);
  ASSERT_EQ(cache.Ask("a").state, State::kClaimed);
  std::thread other([&] {
    EXPECT_EQ(cache.Ask("a").state, State::kBusy);
    const ObjectCache::Object object = cache.Wait("a");
    ASSERT_NE(object, nullptr);
    EXPECT_EQ(*object, "made");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  cache.Put("a", Bytes("made"));
  other.join();
}

TEST(ObjectCache, ForgetsWhatWasNotUsedForLongest) {
  ObjectCache cache(30);  // three keys of one byte, with eight bytes each
  for (const char* key : {"a", "b", "c"}) {
    ASSERT_EQ(cache.Ask(key).state, State::kClaimed);
    cache.Put(key, Bytes("12345678"));
  }
  EXPECT_EQ(cache.Ask("a").state, State::kKnown);
  ASSERT_EQ(cache.Ask("d").state, State::kClaimed);
  cache.Put("d", Bytes("12345678"));
  EXPECT_EQ(cache.Ask("a").state, State::kKnown);
  EXPECT_EQ(cache.Ask("c").state, State::kKnown);
  EXPECT_EQ(cache.Ask("b").state, State::kClaimed);
}

TEST(ObjectCache, KeepsTheLastObjectHoweverLarge) {
  ObjectCache cache(10);
  ASSERT_EQ(cache.Ask("a").state, State::kClaimed);
  cache.Put("a", Bytes(std::string(100, 'x')));
  EXPECT_EQ(cache.Ask("a").state, State::kKnown);
}

}  // namespace
}  // namespace diapason
